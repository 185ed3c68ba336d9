"""Test tools for Millpond; public, so that other projects can test with them too.

`local_runtime` and `manual_clock` make a pond without Spark and without waiting. `golden_file`
reads a golden, `golden` runs it, in each of the ways that `golden_ways` lists. `oracle_pond`
answers as the definition of a query says, naively; `oracle_laws` and `oracle_following` compare a
pond's answers and changes with it. `check_operator` compares an operator with its meaning.
`strategies` has Hypothesis draw streams, queries and feeds.
"""
