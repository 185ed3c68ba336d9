"""Joins of streams: arrangements (the runs of Data SteMs), probes, composites, stored pairs."""
