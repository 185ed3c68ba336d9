"""A pond for tests, without Spark and without waiting; public, so that other projects can use it.

`local_runtime.open_local()` runs the tasks of the pipeline in this process, in the order in which
Spark would; `manual_clock.ManualClock` is a clock that stands still until it is told to move.
"""
