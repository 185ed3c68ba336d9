"""Windows: which elements of a stream are rows of a relation, and when."""
