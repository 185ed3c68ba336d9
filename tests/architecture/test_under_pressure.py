"""Everything that docs/spec/pressure.md and the guide name has its code and its law.

The names are those of the code's own lists: a function, synopsis, clause of a tolerance, constraint,
scheduler, step of a ladder, field of a loss that is added and has no line here fails. A line says
where the thing is and which test holds it to its word; that test has to be there.
"""

# ruff: noqa: E501 - the names of tests are as long as they are
from __future__ import annotations

import ast
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from millpond.catalog.options import OPTIONS
from millpond.catalog.tolerance import Reduction, Tolerance
from millpond.cql import parse_statement, print_statement
from millpond.engine.dataflow.scheduling.policies import NAMES
from millpond.model.approximation import APPROXIMATE, TOP_K
from millpond.model.constraints import KINDS
from millpond.model.loss import Cause, Loss
from millpond.service.changes.giving_way.memory_ladder import RUNGS as MEMORY_RUNGS
from millpond.service.changes.giving_way.memory_ladder import SPILL, SUSPEND
from millpond.service.ingest.pressure import RUNGS as WORK_RUNGS

TESTS = Path(__file__).parents[1]
SYNOPSES = TESTS.parent / "src" / "millpond" / "synopses"

#: Where a thing is (module and name), and the tests of its law (file and name).
Line = tuple[str, tuple[str, ...]]

_SKETCH = "properties/test_sketches.py::test_a_sketch_is_a_function_of_the_bag"
_BOUNDS = "unit/service/answers/test_reduced.py::test_bounds_of_thousands_of_cells_hold_at_their_confidence"
_PARTS = (
    "integration/planner/test_every_reduction.py::test_every_form_of_query_under_every_reduction"
)
_FREE = "properties/test_constraints.py::test_no_constraint_changes_an_answer"
_CELLS = "unit/synopses/summaries/test_stream_summary.py::test_cells_are_those_computed_naively"
_FILTER = "unit/synopses/test_sliced_filter.py::test_wrong_answers_are_as_rare_as_it_says"
_POLICIES = "unit/engine/dataflow/scheduling/test_policies.py"
_LADDER = "unit/service/changes/giving_way/test_memory_ladder.py"

FUNCTIONS: dict[str, Line] = {
    "approx_count_distinct": ("synopses.sketches.least_hashes:LeastHashes", (
        _SKETCH, "properties/test_sketches.py::test_many_distinct_values_are_within_the_error_as_often_as_said")),
    "approx_quantile": ("synopses.sketches.log_histogram:LogHistogram", (
        _SKETCH, "properties/test_sketches.py::test_a_quantile_is_within_its_error")),
    "approx_count": ("synopses.sketches.signed_counts:SignedCounts", (
        _SKETCH, "properties/test_sketches.py::test_counts_of_values_are_within_the_error_as_often_as_said")),
    # It has no error: it is computed from all values of a group.
    "approx_top_k": ("cql.print.approximations", (
        "properties/test_every_function.py::test_every_approximation_has_an_example",
        "properties/test_every_function.py::test_changes_add_up_to_the_answer")),
}  # fmt: skip

#: By file; what serves another of the list is in the line of that.
SYNOPSIS_FILES: dict[str, tuple[str, ...]] = {
    "sketches/least_hashes.py": FUNCTIONS["approx_count_distinct"][1],
    "sketches/log_histogram.py": FUNCTIONS["approx_quantile"][1],
    "sketches/signed_counts.py": FUNCTIONS["approx_count"][1],
    "summaries/count_sketch.py": (_CELLS, "unit/synopses/summaries/test_count_sketch.py::test_a_count_sketch_is_off_by_more_than_its_error_once_in_twenty_times_at_most"),
    "summaries/value_histogram.py": (_CELLS, "unit/synopses/summaries/test_value_histogram.py::test_a_histogram_is_never_off_by_more_than_it_says"),
    "summaries/value_sample.py": ("unit/synopses/summaries/test_value_sample.py::test_samples_of_parts_make_the_sample_of_the_whole", "unit/synopses/summaries/test_value_sample.py::test_a_small_sample_is_exact_and_a_large_one_says_how_far_it_may_be_off"),
    "summaries/zones.py": ("unit/synopses/summaries/test_stream_summary.py::test_zones_follow_the_papers_rule",),
    "summaries/stream_summary.py": (_CELLS,),
    "summaries/protocol.py": ("unit/synopses/summaries/test_stream_summary.py::test_what_was_added_can_be_taken_away",),
    "key_filter.py": ("unit/synopses/test_key_filter.py::test_what_was_put_in_is_found_and_little_else", _FREE),
    "sliced_filter.py": (_FILTER, "unit/synopses/test_sliced_filter.py::test_bits_depend_on_the_order_of_keys_and_not_on_calls"),
    "sample_bounds.py": ("unit/synopses/test_sample_bounds.py::test_bounds_miss_no_more_often_than_they_say", _BOUNDS),
    "sampling.py": ("unit/synopses/test_sampling.py::test_a_larger_sample_holds_the_smaller_one",),
    # Exact ones.
    "totals.py": ("unit/synopses/test_totals.py::test_parts_merge_in_any_order",),
    "total_walks.py": ("unit/synopses/test_totals.py::test_a_range_of_rows_is_those_rows",),
    "running_totals.py": ("unit/synopses/test_totals.py::test_a_range_of_rows_is_those_rows",),
    "blocked_totals.py": ("unit/synopses/test_totals.py::test_blocks_give_the_total_of_any_of_them",),
    "group_totals.py": ("properties/test_group_totals.py::test_totals_by_group",),
    "exact_doubles.py": ("unit/synopses/test_exact_doubles.py::test_sums_and_squares_are_exact_and_rounded_once",),
    "double_walks.py": ("unit/synopses/test_totals.py::test_sums_of_doubles_are_rounded_once",),
    "wide_integers.py": ("unit/synopses/test_totals.py::test_a_total_is_what_the_values_say",),
    "ordered_multiset.py": ("unit/synopses/test_ordered_multiset.py::test_they_are_what_sorting_says",),
    "extremes.py": ("unit/synopses/test_extremes.py::test_they_give_what_multisets_give",),
    "fifo_extremes.py": ("unit/synopses/test_fifo_extremes.py::test_they_give_what_multisets_give",),
    "key_lists.py": ("unit/synopses/test_key_lists.py::test_they_are_what_sorting_says",),
    "valued_orders.py": ("unit/synopses/test_valued_orders.py::test_values_are_read_as_they_were_written",),
    "multiset_walks.py": ("unit/synopses/test_ordered_multiset.py::test_they_are_what_sorting_says",),
    "counted_tree.py": ("unit/synopses/test_ordered_multiset.py::test_they_are_what_sorting_says",),
    "ordered_texts.py": ("unit/synopses/test_ordered_texts.py::test_labels_are_in_the_texts_order",),
    "text_numbers.py": ("unit/synopses/test_ordered_texts.py::test_many_texts_grow_the_table_and_little_is_left_when_most_are_forgotten",),
    "order_keys.py": ("unit/synopses/test_ordered_multiset.py::test_they_are_what_sorting_says",),
    "mapped_memory.py": ("unit/engine/dataflow/test_state_memory.py::test_state_is_the_same_in_files_and_back_in_memory",),
}  # fmt: skip

TOLERANCES: dict[str, Line] = {
    "window": ("planner.approximate.reductions:shorten", (_PARTS,)),
    "sample": ("operators.sample:Sample", (
        _PARTS, "unit/service/answers/test_reduced.py::test_a_small_sample_is_part_of_a_greater_one")),
    "samples": ("planner.approximate.allocation:allocate", (
        _PARTS, "unit/service/changes/giving_way/test_precision_models.py::test_what_is_predicted_is_measured_and_better_than_equal_shares")),
    "least": ("service.queries.reductions:decide", (
        "unit/service/answers/test_reduced.py::test_reduced_answers_and_changes_are_parts_of_exact_ones",)),
    "false_positives": ("planner.approximate.filters:mark_filters", (
        "unit/planner/approximate/test_filters.py::test_changes_are_those_of_a_window_that_is_a_little_longer",
        "integration/planner/test_filtered_queries.py::test_changes_in_many_steps_and_over_restarts_are_exact_but_for_false_positives",
        _FILTER)),
    "error": ("service.answers.reduced:ReducedAnswers", (
        "unit/service/answers/test_reduced.py::test_an_answer_whose_interval_is_too_wide_is_exact",)),
    "confidence": ("synopses.sample_bounds:bound_counts", (_BOUNDS,)),
}  # fmt: skip

CONSTRAINTS: dict[str, Line] = {
    "unique": ("operators.structures.adherence:watch", (
        _FREE, "unit/operators/structures/test_releases.py::test_a_row_whose_unique_partner_came_is_released")),
    "clustered": ("operators.structures.adherence:watch", (
        _FREE, "unit/operators/structures/test_releases.py::test_a_cluster_that_is_over_is_released",
            "unit/operators/structures/test_group_releases.py::test_a_group_whose_cluster_is_over_is_released")),
    "ordered": ("operators.structures.adherence:watch", (
        _FREE, "unit/operators/structures/test_releases.py::test_values_below_an_orders_reach_are_released")),
    "foreign key": ("operators.structures.adherence:watch", (
        _FREE, "unit/operators/structures/test_releases.py::test_who_got_no_partner_in_time_is_released")),
}  # fmt: skip

SCHEDULERS: dict[str, Line] = {
    "fifo": ("engine.dataflow.scheduling.fifo:Fifo", (
        f"{_POLICIES}::test_queues_are_as_large_as_in_the_papers_table",)),
    "round robin": ("engine.dataflow.scheduling.round_robin:RoundRobin", (
        f"{_POLICIES}::test_round_robin_takes_turns",)),
    "greedy": ("engine.dataflow.scheduling.greedy:Greedy", (
        f"{_POLICIES}::test_greedy_leaves_a_steep_operator_behind_a_flat_one_and_chain_does_not",)),
    "chain": ("engine.dataflow.scheduling.chain:Chain", (
        f"{_POLICIES}::test_chain_holds_at_most_a_batch_per_chain_more_than_any_schedule",
        f"{_POLICIES}::test_chain_is_held_to_the_optimum_on_every_plan_of_a_grid")),
    "latency": ("engine.dataflow.scheduling.latency_bound:LatencyBound", (
        f"{_POLICIES}::test_a_slice_is_late_only_if_it_would_be_late_by_fifo_too",)),
}  # fmt: skip

STEPS: dict[str, Line] = {
    "defer": ("service.ingest.pressure:DEFER", (
        "unit/service/ingest/test_pressure.py::test_steps_change_no_answer_of_queries_that_tolerate_nothing",
        "unit/service/ingest/test_pressure.py::test_followers_of_light_queries_wait_and_miss_nothing")),
    "reduce": ("service.changes.giving_way.reducing:Decisions", (
        "integration/service/test_reducing_while_running.py::test_changes_are_those_of_the_query_in_force_at_every_instant",)),
    "hold back": ("service.ingest.door:Door", (
        "unit/service/ingest/test_door.py::test_a_stream_that_blocks_is_refused_before_there_is_too_much",
        f"{_LADDER}::test_pushes_are_held_back_near_the_limit_while_followers_are_behind")),
    "shed": ("service.ingest.door:Door", (
        "unit/service/ingest/test_door.py::test_a_stream_that_sheds_climbs_and_descends",
        "unit/engine/admission/test_shed.py::test_every_element_is_counted_in_its_second")),
    "spill": ("engine.dataflow.state_memory", (
        "unit/engine/dataflow/test_state_memory.py::test_state_is_the_same_in_files_and_back_in_memory",)),
    "suspend": ("service.changes.giving_way.memory_ladder:MemoryLadder", (
        f"{_LADDER}::test_suspensions_are_recorded_with_the_query_and_other_failures_are_not",)),
}  # fmt: skip

OVERLOAD: dict[str, tuple[str, ...]] = {
    "block": STEPS["hold back"][1],
    "shed random": ("unit/engine/admission/test_shed.py::test_about_the_share_is_shed_and_a_greater_share_sheds_more",),
    "shed chunks": ("unit/engine/admission/test_shed.py::test_chunks_are_shed_whole",),
    "shed lightest": ("faults/test_flood.py::test_in_a_flood_with_kills_everything_adds_up",),
}  # fmt: skip

_SAID = "surfaces/test_promise.py::test_what_was_lost_is_said"
LOSS_FIELDS: dict[str, tuple[str, ...]] = {
    "stream": (_SAID,),
    "cause": (_SAID, "unit/model/test_loss.py::test_losses_are_merged_by_stream_and_cause"),
    "since": ("surfaces/test_promise.py::test_what_the_loss_does_not_concern_stays_exact",),
    "upto": ("surfaces/test_promise.py::test_what_the_loss_does_not_concern_stays_exact",),
    "elements": ("unit/engine/admission/test_shed.py::test_every_element_is_counted_in_its_second",),
    "missing": ("unit/model/test_loss.py::test_what_a_loss_says",),
    "kept": ("unit/service/answers/test_reduced.py::test_reduced_answers_and_changes_are_parts_of_exact_ones",),
    "wrong": ("integration/planner/test_filtered_queries.py::test_changes_are_filtered_and_say_so_and_answers_are_exact",),
}  # fmt: skip
CAUSES: dict[str, tuple[str, ...]] = {
    "expired": ("surfaces/test_promise.py::test_what_the_loss_does_not_concern_stays_exact",),
    "damaged": (_SAID,),
    "shed": ("faults/test_flood.py::test_in_a_flood_with_kills_everything_adds_up",),
    "sampled": ("unit/service/answers/test_reduced.py::test_reduced_answers_and_changes_are_parts_of_exact_ones",),
    "shortened": ("unit/service/answers/test_reduced.py::test_reduced_answers_and_changes_are_parts_of_exact_ones",),
    "budget": ("unit/service/changes/test_looks.py",),
    "filtered": ("integration/planner/test_filtered_queries.py::test_changes_are_filtered_and_say_so_and_answers_are_exact",),
}  # fmt: skip

#: The statements of section 2 of the page, and what answers or shows of them is held to.
STATEMENTS: dict[str, str] = {
    "CREATE QUERY q WITH (tolerate = 'window 10 minutes, sample 5 %, error 2 % at 95 %') AS SELECT v FROM s":
        "unit/catalog/test_tolerance.py::test_a_tolerance_is_read_and_its_text_means_the_same",
    "CREATE QUERY q WITH (tolerate = 'false positives 1 %') AS SELECT v FROM s":
        "integration/planner/test_filtered_queries.py::test_changes_are_filtered_and_say_so_and_answers_are_exact",
    "CREATE QUERY q WITH (tolerate = 'nothing') AS SELECT v FROM s":
        "unit/service/queries/test_reductions.py::test_what_is_followed_does_not_become_another_query",
    "CREATE STREAM f (order_id BIGINT, item INTEGER, ts TIMESTAMP,"
    " CONSTRAINT c1 CLUSTERED BY (order_id) WITHIN 5 ROWS, CONSTRAINT c2 ORDERED BY (item) WITHIN INTERVAL 3 SECONDS,"
    " CONSTRAINT c3 FOREIGN KEY (order_id) REFERENCES orders WITHIN 10 ROWS) TIMESTAMP BY ts WITH (overload = 'shed random')":
        "unit/service/definitions/test_constraints.py::test_what_a_join_holds_is_shown_and_explained",
    "CREATE STREAM orders (order_id BIGINT, UNIQUE (order_id))":
        "unit/service/definitions/test_constraints.py::test_what_a_join_holds_is_shown_and_explained",
    "ALTER STREAM f SET (overload = 'shed chunks')":
        "surfaces/over_http/test_http_streams.py::test_clauses_of_a_stream_are_altered",
    "ALTER STREAM f ADD CONSTRAINT c4 UNIQUE (item)":
        "unit/service/definitions/test_constraints.py::test_altered_constraints_hold_at_once_and_stay",
    "ALTER STREAM f DROP CONSTRAINT c4":
        "unit/service/definitions/test_constraints.py::test_altered_constraints_hold_at_once_and_stay",
    "ALTER SYSTEM SET (freshness = '2 seconds')":
        "unit/service/ingest/test_pressure.py::test_work_gives_way_when_the_oldest_push_waits_for_long",
    "SHOW CONSTRAINTS":
        "unit/service/definitions/test_constraints.py::test_what_a_join_holds_is_shown_and_explained",
    "ALTER SYSTEM SET (memory = '2 GB', queue_memory = '256 MB', scheduler = 'chain', latency = '2 seconds')":
        "integration/service/test_schedulers.py::test_each_scheduler_gives_the_same_changes_and_is_switched_while_running",
    "EXPLAIN APPROXIMATION q":
        "unit/service/observe/test_explain_approximation.py::test_it_says_what_would_be_saved",
    "EXPLAIN APPROXIMATION SELECT v FROM s":
        "unit/service/observe/test_explain_approximation.py::test_what_cannot_be_reduced_safely_is_exact",
    "SELECT approx_count_distinct(x), approx_quantile(x, 0.99), approx_top_k(x, 10), approx_count(x, 3) FROM s [RANGE 1 DAY]":
        "properties/test_every_function.py::test_every_approximation_has_an_example",
}  # fmt: skip


@cache
def list_tests(file: str) -> frozenset[str]:
    """The tests of a file under tests."""
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def check_tests(tests: tuple[str, ...]) -> None:
    """Raise AssertionError unless each of these tests is there."""
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        found = list_tests(file)
        assert name in found if name else any(n.startswith("test_") for n in found), test


def check_lines(names: set[str], lines: dict[str, Line]) -> None:
    """Raise AssertionError unless the lines are of these names, and lead somewhere."""
    assert lines.keys() == names
    for where, tests in lines.values():
        module, _, name = where.partition(":")
        found = import_module(f"millpond.{module}")
        assert not name or hasattr(found, name), where
        check_tests(tests)


def check_laws(names: set[str], laws: dict[str, tuple[str, ...]]) -> None:
    """Raise AssertionError unless the laws are of these names, and each has tests."""
    assert laws.keys() == names
    for tests in laws.values():
        check_tests(tests)


def test_every_approximate_function() -> None:
    check_lines({*APPROXIMATE, TOP_K}, FUNCTIONS)


def test_every_synopsis() -> None:
    files = {str(path.relative_to(SYNOPSES)) for path in SYNOPSES.rglob("*.py")}
    check_laws({file for file in files if not file.endswith("__init__.py")}, SYNOPSIS_FILES)


def test_every_clause_of_a_tolerance() -> None:
    names = {field.name for kind in (Reduction, Tolerance) for field in fields(kind)}
    check_lines(names, TOLERANCES)


def test_every_kind_of_constraint() -> None:
    check_lines(set(KINDS), CONSTRAINTS)


def test_every_scheduler() -> None:
    check_lines({*NAMES, "latency"}, SCHEDULERS)


def test_every_step_of_the_ladders() -> None:
    climbed = {rung.action for rung in (*WORK_RUNGS, *MEMORY_RUNGS)}
    check_lines({*climbed, "hold back", "shed", SPILL, SUSPEND}, STEPS)


def test_every_way_to_be_overloaded() -> None:
    check_laws(set(OPTIONS["overload"].values.schema["enum"]), OVERLOAD)


def test_every_field_and_cause_of_a_loss() -> None:
    check_laws({field.name for field in fields(Loss)}, LOSS_FIELDS)
    check_laws({cause.value for cause in Cause}, CAUSES)


@pytest.mark.parametrize("text", STATEMENTS)
def test_every_statement(text: str) -> None:
    statement = parse_statement(text)
    assert print_statement(parse_statement(print_statement(statement))) == print_statement(
        statement
    )
    check_tests((STATEMENTS[text],))
