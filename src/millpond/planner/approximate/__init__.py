"""What a query that tolerates approximation may be given (STREAM, sections 5.1 and 5.2)."""
