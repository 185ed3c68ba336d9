"""The protocol of operators: nodes of a plan, their operators, and deltas on the edges."""
