"""The service: one open pond, from a statement to its effect.

`pond` and `handles` are what a client sees; `components` puts the parts together and `open_pond`
opens them on Spark. What happens in a part reaches the other parts through the port `events`. Its
one implementation, `event_handlers`, names who acts. Each folder is a part of the story, from the
bottom to the top:
`queries` registers standing queries and keeps their slots in the Query SteMs; `ingest` takes rows
in and makes epochs of them (`intake`, `floors`, `sequencer`); `answers` invokes queries and keeps
answers current; `maintenance` backfills, merges, evicts and joins behind the scenes; `changes`
computes, stores and delivers the changes of followed queries; `definitions` creates streams and
relations and opens their sources; `observe` explains, measures and lists; `statements` executes one
parsed statement.
"""
