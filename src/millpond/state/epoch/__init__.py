"""What an epoch changes: as its author states it, what it means, and the version it makes.

`epoch_change` is the change as its author states it. `resolve_change`, and `resolve_joins` for
shared joins, decide what the change means for the version it meets. `next_version` makes the
version that readers see after it. `millpond.state.epoch_log` does these steps in one transaction.
"""
