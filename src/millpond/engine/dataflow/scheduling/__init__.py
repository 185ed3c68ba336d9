"""Which operator of a dataflow runs next: one pure policy a file (STREAM, CIDR 4.2)."""
