"""Checks the files of a store that no process has open, and repairs a damaged store."""
