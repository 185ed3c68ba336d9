"""PostgreSQL: connections to it, and what logical replication says of its tables.

Needs the extra `postgres` (`pip install millpond[postgres]`), which is imported when it is used.
"""
