"""HTTP: statements, queries, streams, changes and plans, and a client with the pond's surface.

`surface` says what every way in may call of a pond. `app` puts the calls of `routers` together and
`server` runs them. `decode` and `encode` read requests and write responses, `negotiate` chooses
their form, `limits` bounds them, and `problems` gives every error its status. `subscribers` wakes
clients that wait for changes. `client` and `remote_handles` are the client.
"""
