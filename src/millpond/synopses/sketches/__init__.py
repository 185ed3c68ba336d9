"""Sketches: what `approx_…` functions keep of many values, one file each.

A sketch is a function of the bag of values, is merged in any order, and never holds more than the
values it is made of. What it keeps of a value is in `millpond.cql.print.approximations`.
"""

from __future__ import annotations

from millpond.model.approximation import COUNT_DISTINCT, COUNT_OF, QUANTILE
from millpond.synopses.sketches.least_hashes import LeastHashes
from millpond.synopses.sketches.log_histogram import LogHistogram
from millpond.synopses.sketches.signed_counts import SignedCounts

Sketch = LeastHashes | LogHistogram | SignedCounts

#: The sketch of each function.
SKETCHES: dict[str, type[LeastHashes] | type[LogHistogram] | type[SignedCounts]] = {
    COUNT_DISTINCT: LeastHashes,
    QUANTILE: LogHistogram,
    COUNT_OF: SignedCounts,
}
