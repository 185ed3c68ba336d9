"""The demo: a year of real flights past thousands of standing queries (`millpond demo`).

`data` reads the flights, `travellers` invents who asks what, `replay` feeds a pond, `screen` shows
it, `proof` checks every answer against DuckDB, and `run_demo` puts them in order.
"""
