"""From text to statements and trees: tokens, a reader of them, one reader for each clause."""
