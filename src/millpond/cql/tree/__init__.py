"""What a parsed statement is made of: nodes, statements, function calls, places in the text."""
