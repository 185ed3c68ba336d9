"""Kafka: what topics hold, read record by record in tasks, and decoded for admission.

Needs the extra `kafka` (`pip install millpond[kafka]`), which is imported when it is used.
"""
