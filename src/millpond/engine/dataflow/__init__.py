"""Running operators: the dataflow that many plans share, its scalars, a step's net changes."""
