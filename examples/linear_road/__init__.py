"""Linear Road: tolls on a crowded expressway, the benchmark stream systems are compared by.

(Arasu et al., VLDB 2004.) Cars report where they are every 30 seconds. Who enters a segment that is
crowded and slow pays a toll, unless an accident is near; what each car owes is known at any time.
`traffic` makes the reports, `queries.cql` answers them in CQL over derived streams and relations,
and `rules` computes the same in plain Python.
"""
