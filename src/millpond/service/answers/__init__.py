"""INVOKE: what a window sees of a stream, joins from stored pairs, and answers kept current."""
