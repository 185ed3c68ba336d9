"""The nouns everything else speaks of: instants, schemas, windows, bit matrices."""
