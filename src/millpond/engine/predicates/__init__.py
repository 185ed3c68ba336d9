"""From a WHERE clause to boolean factors in conjunctive normal form, and templates of shapes."""
