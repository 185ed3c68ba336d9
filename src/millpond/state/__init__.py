"""What survives: segments, the epoch log, the inbox, and the recovery of a store's directory.

Reading order: `version` (what a reader sees), `epoch_change` (what one epoch changes),
`resolve_change` (what that means for the current version) and `next_version` (the version after
it), `epoch_log` (one SQLite transaction makes one epoch) over `database`. Files: `arrow_file`,
`segment_file`, `push_file`. Pushed rows wait in the `inbox`. `store` opens and recovers a
directory. Policies: `segment_tree` says what to merge, `retention` what to evict. `relation_log`
keeps the rows of relations with the intervals they held. `join_state` and `resolve_joins` do for
shared joins what `version` and `resolve_change` do for streams. `fail_points` names the places
where a test kills the process.
"""
