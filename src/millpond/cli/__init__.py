"""The command line: run a script, serve a pond, talk to one.

`main` has the commands, `formats` how results are printed, `reading` the progress bars, `shell` the
interactive one with `splitting` and `words` behind its prompt.
"""
