"""Binding: from a parsed query to a bound one, directly or by the template of its shape."""
