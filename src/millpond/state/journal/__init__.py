"""The journal: every change of the store as one numbered, checksummed record.

`record` says what a record looks like, `journal_file` reads a file of them, `journal` appends to
the last file, `snapshot` keeps checked copies of the database, and `fold` makes the database of
both.
Why it is like this: docs/design/journal.md.
"""
