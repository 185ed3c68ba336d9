"""Where Spark looks for the data source `millpond`: in packages whose name begins like this."""

from millpond.runtime.spark.data_source import MillpondSource as DefaultSource

__all__ = ["DefaultSource"]
