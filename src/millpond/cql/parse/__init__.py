"""From text to statements and trees: tokens, a cursor over them, one reader for each clause."""
