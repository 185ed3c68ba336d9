"""Binding: from a parsed query to a bound query, directly or by the template of its shape."""
