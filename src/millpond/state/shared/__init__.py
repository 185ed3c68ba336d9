"""A store that several drivers can reach: one log on shared storage, led by one driver at a time.

`place` says what Millpond asks of shared storage, `posix_place` and `object_place` are a shared
file system and an object store. `shared_record` and `shared_log` are the log; the local database
of whoever leads is its fold. docs/design/cluster.md gives the reasons.
"""
