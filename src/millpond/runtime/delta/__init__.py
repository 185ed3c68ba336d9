"""Delta tables, without Spark: their log, and the options that name one.

Only commits are read here. The files a table consists of are Parquet, and tasks read them.
"""
