"""The values all other packages work with: instants, schemas, windows, bit matrices."""
