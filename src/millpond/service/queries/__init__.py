"""A standing query: its definition, options, slots in the Query SteMs, and its prepared form."""
