"""What may make large values out of small ones, processes for that, and deadlines."""
