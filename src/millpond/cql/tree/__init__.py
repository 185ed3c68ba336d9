"""The parts of a parsed statement: nodes, statements, function calls, places in the text."""
