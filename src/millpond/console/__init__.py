"""The console: a page in the browser that watches the pond and runs CQL."""
