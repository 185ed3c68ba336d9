"""Rows on their way in: formats, acceptance, floors in flight, total order, relation updates."""
