"""The command line: run a script, serve a pond, talk to one.

`main` has the commands. `run_script` runs a file of statements, which `split_statements` cuts;
`shell` is the interactive one, with `completion` behind its prompt. `result_writers` print results
in an `output_format`, `progress_bars` show what is being read, and `complaints` prints errors.
`benches` runs the benchmarks.
"""
