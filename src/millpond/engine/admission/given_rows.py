"""What readers of rows, and admission, agree on: the columns that say what is wrong with a row."""

from __future__ import annotations

#: The most bytes a row may have as it is given, in Arrow's form.
MOST_ROW_BYTES = 16_777_216
#: A column a reader may add: the text of a row it could not split into columns.
CORRUPT = "__corrupt"
#: Another: why a row can be no element, in the reader's words; NULL for all other rows.
REFUSED = "__refused"
#: What the name of another begins with, before that of a column of texts: the bytes of the rows in
#: which bytes were given. A text of a BLOB column is read with its escapes, bytes are as they are.
BYTES = "__bytes "
