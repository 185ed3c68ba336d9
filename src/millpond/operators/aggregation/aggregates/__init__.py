"""The aggregates that are followed incrementally, one file each.

Each file has the classes of its aggregates and a function `recognize`, which makes one from a call
or says that it is none of its own. The planner asks all of them; a call that none recognizes is
answered by re-evaluation.
"""
