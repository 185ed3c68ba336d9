"""HTTP: statements, queries, streams, changes and plans, and a client with the pond's surface.

`surface` declares the calls of a pond that the HTTP API, the shell and the command line use. `app`
puts the calls of `routers` together, `listening` takes the port and `server` runs them. `encode`
writes responses and `decode` reads them in the client, `negotiate` chooses their form, `limits`
bounds requests, and `problems` gives every error its status. `subscribers` wakes clients that wait
for changes. The folder `client` is the client.
"""
