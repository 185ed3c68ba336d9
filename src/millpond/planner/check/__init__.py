"""Checks of a resolved query: types, constants, shapes; and where an error lies in the text."""
