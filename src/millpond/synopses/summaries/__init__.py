"""Summaries of streams: what steers a query to the most promising part of its windows.

*Scalability via Summaries: Stream Query Processing using Promising Tuples* (Ali, Aref, ElTabakh),
section 3. `stream_summary` divides time; the other modules are summary-ADTs, one a file.
"""
