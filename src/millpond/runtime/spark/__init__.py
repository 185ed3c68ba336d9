"""Spark as the runtime: the only package that imports pyspark."""
