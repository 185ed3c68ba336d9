"""The pond: what every way in talks to.

`pond` is what a client can do, `works` what works inside and how it is put together, `composition`
makes one on Spark. Rows: `intake`, `promises`, `sequencer`. Queries: `registration`, `additions`,
`prepared`, `stems`. Answers: `invocation`, `leaf_views`, `stored_join`, `kept_answers`. Changes:
`derivations`, `agenda`, `advancer`, `following`. Behind everyone's back: `maintenance`, `backfill`,
`join_maintenance`. Text: `statements`, `row_statements`, `shown`, `explanations`.
"""
