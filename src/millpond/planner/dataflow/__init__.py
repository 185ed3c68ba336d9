"""From a bound query to a dataflow: the operators that compute its changes, and over what.

`plan` puts it together: `leaves` are what streams and relations become, `query` what is above them,
with a module for each part of SQL that has operators (`from_clause`, `joins`, `group_by`, …).
"""
