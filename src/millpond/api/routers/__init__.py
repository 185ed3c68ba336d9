"""The calls, one file a resource."""
