"""What an operator is, what runs along edges, and what a plan asks of a node."""
