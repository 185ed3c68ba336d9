"""The pond: what every way in talks to. `pond.py` is the composition root."""
