"""What a query means, computed naively: the oracle the engine is held to.

`contents` is a window, `history` a stream, `relations` a relation; `denotation` puts them together.
"""
