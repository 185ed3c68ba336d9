"""What the `approx_…` functions promise, and the numbers their values are defined by.

A value of these functions is a function of the bag of its arguments, so it does not depend on the
order of rows, on where data is cut, or on whether it is merged from sketches. Hashes are those of
DuckDB.
"""

from __future__ import annotations

#: How far a value may be from the exact one, as a part of the exact one.
ERROR = 0.02
#: With which probability a count of distinct values is within `ERROR`; quantiles always are.
CONFIDENCE = 0.95
#: How many of the least hashes a count of distinct values is estimated from; with fewer distinct
#: values it is exact. The relative standard error is 1 / √(LEAST_HASHES − 2), about 1 %.
LEAST_HASHES = 10_000
#: How many hashes there are.
HASHES = 2**64
#: A double x is rounded to its 6 leading binary digits by x·SPLIT − (x·SPLIT − x) (Dekker 1971,
#: Veltkamp's splitting): a relative error of at most 1/64.
SPLIT = 2**47 + 1
#: From here on doubles are not rounded, because x·SPLIT could overflow.
UNROUNDED = 1e290

#: How many counters a count of a value is estimated from. By Chebyshev's inequality the estimate is
#: within `ERROR` of the root of the sum of the squared counts with a probability of 96 %.
BUCKETS = 2**16

COUNT_DISTINCT, QUANTILE, COUNT_OF = APPROXIMATE = (
    "approx_count_distinct",
    "approx_quantile",
    "approx_count",
)
#: It is computed exactly, from all of a group's values, so no sketch serves it.
TOP_K = "approx_top_k"
