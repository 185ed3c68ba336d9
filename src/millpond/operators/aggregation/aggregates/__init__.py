"""The aggregates that are followed incrementally, one file each.

Each file has the classes of its aggregates, the `NAMES` of the functions that it follows (their
own names, not their synonyms: `millpond.model.functions` knows those), and a function `recognize`,
which makes an aggregate of a call of one of them, or None if it cannot follow that call, for its
type perhaps. Such a call, and one of a function that no file has, is answered by re-evaluation.
"""
