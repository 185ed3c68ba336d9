"""Moves followed queries to plans that are drawn at random, as the monitor of plans moves them."""

from __future__ import annotations

import random
from typing import Any

from millpond.operators.expire import Expire
from millpond.operators.join import Join
from millpond.planner.dataflow.plan import Plan
from millpond.planner.optimize.choices import (
    CARRIED,
    DISTINCT_FORMS,
    Choice,
    find_adopted_choices,
    find_distinct_form,
)
from millpond.planner.optimize.cost import CHOICES
from millpond.service.changes.noticing.plan_monitor import PlanMonitor
from millpond.service.changes.noticing.reconsider import CheaperPlans
from millpond.service.components import Components


def draw_choices(plan: Plan, chance: random.Random) -> dict[str, Choice]:
    """Draw choices of a plan's operators; where one cannot be followed, planning does without."""
    found: dict[str, Choice] = {}
    for node in plan.nodes():
        expire = chance.choice(((), (CARRIED,), (chance.choice(CHOICES),), (CARRIED, 50)))
        order: tuple[int, ...] = ()
        if isinstance(node, Join) and node.group:
            order = tuple(chance.sample(range(len(node.items)), len(node.items)))
        distinct = chance.choice(list(DISTINCT_FORMS)) if find_distinct_form(node) else ""
        if not isinstance(node, Expire):
            found[node.logical_key] = Choice(expire, distinct, order)
    return found


def propose_any(parts: Components, chance: random.Random) -> CheaperPlans:
    """Propose other plans for some derivations, whatever they cost."""
    version = parts.log.version
    adopted = find_adopted_choices(version.settings)
    group = [
        one
        for stream in parts.derivations.list_streams(version)
        if not stream.is_shared_log
        and (one := parts.derivations.find_of(version, stream)) is not None
        and one.plan.read_choices()
    ]
    together: dict[str, Choice] = {}
    for one in group:
        together |= draw_choices(one.plan, chance)
    moved, chosen = [], {}
    for one in group:
        query = version.query_of(one.stream)
        made = parts.derivations.replan(version, one.stream, {**together, **adopted}, query)
        if made.plan.key != one.plan.key:
            moved.append(made)
            choices = made.plan.read_choices().items()
            chosen[one.id] = {key: c for key, c in choices if key not in adopted}
    return CheaperPlans(tuple(moved), chosen, 2.0, 1.0)


def move_plans(pond: Any, seed: int) -> int:
    """Move plans of a pond; say how many."""
    parts: Components = pond._components
    monitor: PlanMonitor = parts.plan_monitor
    proposal = propose_any(parts, random.Random(seed))
    monitor._move(parts.log.version, proposal)
    return len(proposal.moved)
