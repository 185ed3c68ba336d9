"""What Millpond is tested with, for tests of one's own too.

`local_runtime` and `manual_clock` make a pond without Spark and without waiting. `golden` runs what
`golden_file` reads, in the `golden_ways`. `oracle_pond` answers as the definition says, and
`oracle_laws` holds the engine to it. `check_operator` holds an operator to its meaning.
`strategies` draws streams, queries and feeds.
"""
