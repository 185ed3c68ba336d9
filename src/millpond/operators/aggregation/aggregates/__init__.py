"""The aggregates that are computed incrementally, one family a file.

Each file has the classes of its aggregates, the `NAMES` of their functions (without synonyms, which
`millpond.model.functions` knows), and a function `recognize`. `recognize` makes an aggregate from a
call of one of these functions, or returns None if it cannot compute that call incrementally, for
example because of its type. Re-evaluation answers such calls, and calls of all other functions.
"""
