"""What workers do, and the runtimes that decide where and when.

`tasks` builds segments of a batch, `maintenance_tasks` matches and merges kept ones, `join_tasks`
joins them, `advance` makes changes. `protocol` is what a runtime is; `spark` is one.
"""
