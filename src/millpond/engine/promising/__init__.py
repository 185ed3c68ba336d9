"""Promising regions: what a query looks at first (promising tuples, section 4)."""
