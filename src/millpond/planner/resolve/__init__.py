"""Name resolution: what every table, alias and column of a query means, and what it pushes down."""
