"""The JVM below Spark: which Java there is, its archive of classes, and how it is launched."""
