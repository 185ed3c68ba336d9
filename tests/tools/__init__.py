"""What several tests use: goldens and the ways to run them, strategies, checks of an operator."""
