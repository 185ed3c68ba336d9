"""The tasks that workers run, and the runtimes that decide where and when workers run them.

Every task is a function of a job and of committed files; it writes files that nobody sees before
the driver commits them. `batch_tasks` builds segments from a batch's rows, `maintenance_tasks`
backfills and merges kept segments, `join_tasks` joins segments (reading through `join_segments`),
`advance_task` advances the dataflows of `dataflow_cache` and writes their changes. `protocol` says
what a runtime offers the pond (`Runtime`) and what the pond offers a runtime (`Pipeline`). `spark`
is the runtime on Spark; the tests' in-process runtime is in `millpond.testing`.
"""
