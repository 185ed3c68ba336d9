"""HTTP: the pond's statements, queries, streams and plans, and a client with the pond's surface.

`surface` is what a way in may rely on; `encode` and `decode` are the two ends of the wire;
`problems` gives every error its status; `app` puts the routers together, `server` runs them and
`client` calls them.
"""
