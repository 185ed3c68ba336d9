"""What survives: segments, the epoch log, the inbox, and the recovery of a store's directory.

Reading order: `version` is what a reader sees, with `join_state` for shared joins. The folder
`epoch` has what one epoch changes, what that means for the current version, and the version after
it. `epoch_log` makes one epoch of one SQLite transaction, over the folders `database` and
`journal`. Files: `arrow_file`, `segment_file`, `push_file`. Pushed rows wait in the `inbox`.
`store` opens and recovers a directory, after `migrations` of an older one; `check_and_repair` is
for a damaged one, and `backup` copies one that may be open. Policies: `segment_tree` says what to
merge, `retention` what to evict. `relation_log` keeps the rows of relations with the intervals they
held. `fail_points` names the places where a test kills the process.
"""
