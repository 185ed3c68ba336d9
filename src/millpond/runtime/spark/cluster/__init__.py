"""What a session needs of a cluster of machines, and not of one machine alone."""
