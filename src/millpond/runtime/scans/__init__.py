"""Scans of large windows by workers, and calls that end with the request they are made for."""
