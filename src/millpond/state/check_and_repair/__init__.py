"""Checking and repairing a store's directory; setting aside the files that nothing refers to."""
