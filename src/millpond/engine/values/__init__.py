"""A value on its axis: sets of values, the cuts they make, and the codes of the regions between."""
