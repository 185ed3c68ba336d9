"""Pushed rows, from their acknowledgement to their epoch: files, the inbox, what a crash left."""
