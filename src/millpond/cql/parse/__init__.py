"""From text to statements and trees: tokens, and what reads them, a file for each kind of clause.

`requests.py` reads any statement (`StatementParser.statement`). Each class adds what it reads to
the class of the file below it, down to `token_reader.py`. Others call `millpond.cql.script`.
"""
