"""Admission: rows become elements or rejects; heartbeats say how far a stream is complete."""
