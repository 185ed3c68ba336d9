"""The oracle: the meaning of a query, computed naively, against which the engine is checked.

`contents` is a window, `history` a stream, `relations` a relation; `denotation` uses all three.
"""
