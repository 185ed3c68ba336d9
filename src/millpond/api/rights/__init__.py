"""People: who calls a server, and what each caller may do.

`caller` says who somebody is, `token_file` where tokens are kept, `gate` lets requests in, and
`guarded_pond` is the pond as its callers have it. Whether a caller may do something is asked in
`rights`, and nowhere else.
"""
