"""What survives: segments, the epoch log, the inbox, and how a directory is recovered.

Read in this order: `version` (what a reader sees), `epoch_change` and `settlement` (what an epoch
does), `epoch_log` (one transaction, one epoch), `arrow_file`, `inbox`, `store`; then the policies
`segment_tree` and `retention`, and `relation_log`. `join_state` and its kin are the same for shared
joins.
"""
