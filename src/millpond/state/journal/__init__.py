"""The journal: every change of the store as one numbered, checksummed record.

`record` defines the bytes of a record, `journal_file` reads a file of records, `journal` appends to
the last file, `snapshot` keeps checked copies of the database, and `fold` makes the database from a
snapshot and the records after it.
docs/design/journal.md gives the reasons for this design.
"""
