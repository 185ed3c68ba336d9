"""CREATE STREAM and CREATE RELATION: declarations, and the sources they are read from."""
