"""Backups: copies a store that may be open, and makes a store as it was at an instant.

`kept` is the layout of a backup's directory and the list of its backups, `backup` adds one,
`find_points` finds the records at which every file is there, and `restore` makes a store.
docs/design/journal.md gives the reasons for this design.
"""
