"""SQLite: the one connection, and the rows from which a store's version is read when it opens."""
