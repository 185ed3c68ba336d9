"""Plans: of one query, of all together, and as documents that are edited and adopted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import WithJsonSchema
from starlette.responses import Response

from millpond.api import encode
from millpond.api.contract import DocumentedRoute
from millpond.api.document import (
    BINDS,
    BODY,
    WRITES,
    Absent,
    describe_answer,
    describe_errors,
)
from millpond.api.shapes import plan_shapes
from millpond.api.surface import ServedPond
from millpond.cql.tree.explain_levels import Level
from millpond.service import json_values
from millpond.service.observe.trace import MOST_TUPLES

#: A plan as a document, whole or with the parts that are to be other.
PlanBody = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "title": "PlanToAdopt",
            "required": ["form"],
            "additionalProperties": False,
            "properties": {
                "form": {"type": "integer", "const": 1, "description": "the version of the form"},
                "adopted": {"type": "integer", "description": "the plan it was exported from"},
                "settings": {"type": "object", "description": "how operators take turns"},
                "queries": {
                    "type": "object",
                    "description": "by name, the queries whose operators are pinned, each with its "
                    "strategy",
                },
                "operators": {
                    "type": "object",
                    "description": "by id, the synopsis of an operator, the order in which it "
                    "joins, and whether queries share it",
                },
            },
        }
    ),
]


def router(pond: ServedPond) -> APIRouter:
    """Make the calls that show plans, and those that change the one that runs."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["queries"])

    @routes.get(
        "/v1/plan",
        response_class=Response,
        responses=describe_answer(plan_shapes.Plan) | describe_errors(404, *BINDS),
    )
    def explain(
        query: Annotated[
            str | Absent, Query(description="A query's text, or a registered query's name.")
        ] = None,
        level: Level = Level.LOGICAL,
    ) -> Response:
        """Returns the plan of any query; without `query`, what all registered queries share."""
        if query is None:
            return _json({"level": Level.SHARED, "plan": pond.shared_plan()})
        return _json({"level": level, "plan": pond.explain(query, level)})

    @routes.get(
        "/v1/plan/graph",
        response_class=Response,
        responses=describe_answer(plan_shapes.PlanGraph) | describe_errors(404),
    )
    def plan_graph(
        query: Annotated[
            str | Absent, Query(description="A registered query's name or id, to be lit.")
        ] = None,
    ) -> Response:
        """Returns what all registered queries share as a graph: streams, what their elements pass,
        and the queries behind it. The part that serves one query can be lit.
        """
        return _json(json_values.to_json_value(pond.plan_graph(query)))

    @routes.get(
        "/v1/plan/trace",
        response_class=Response,
        responses=describe_answer(plan_shapes.Trace) | describe_errors(404),
    )
    def trace(
        stream: Annotated[str, Query(description="The stream whose newest batch is traced.")],
        query: Annotated[
            str | Absent, Query(description="A registered query, of which alone it is told.")
        ] = None,
        tuples: Annotated[int, Query(ge=1, le=MOST_TUPLES)] = 20,
    ) -> Response:
        """Traces the last tuples of a stream's newest batch: which queries each of them went to."""
        return _json(pond.trace(stream, query, tuples))

    @routes.get(
        "/v1/plan/document",
        response_class=Response,
        responses=describe_answer(plan_shapes.PlanDocument) | describe_errors(404),
    )
    def export_plan(
        queries: Annotated[
            list[str] | Absent,
            Query(description="Names of followed queries and derived streams; all by default."),
        ] = None,
    ) -> Response:
        """Returns the plans by which changes are computed as a document, to be edited."""
        return _json(pond.export_plan(queries))

    @routes.post(
        "/v1/plan/compare",
        response_class=Response,
        responses=describe_answer(plan_shapes.ComparedPlan) | describe_errors(404, *BODY, *BINDS),
    )
    def compare_plan(document: PlanBody) -> Response:
        """Returns what would be other if a document were adopted; nothing changes."""
        return _json(pond.compare_plan(document))

    @routes.post(
        "/v1/plan/adopt",
        response_class=Response,
        responses=describe_answer(plan_shapes.AdoptedDifference)
        | describe_errors(404, *BODY, *BINDS, *WRITES),
    )
    def adopt_plan(
        document: PlanBody,
        base: Annotated[
            str | Absent,
            Query(
                description="As comparing gave it: nothing is adopted if something changed since."
            ),
        ] = None,
    ) -> Response:
        """Adopts a document while queries run; no answer and no change is another one."""
        return _json(pond.adopt_plan(document, base=base))

    @routes.get(
        "/v1/plan/adopted",
        response_class=Response,
        responses=describe_answer(plan_shapes.AdoptedPlans),
    )
    def adopted_plans() -> Response:
        """Lists the adopted plans that can be taken back, the last one first."""
        return _json({"plans": pond.adopted_plans()})

    @routes.post(
        "/v1/plan/undo",
        response_class=Response,
        responses=describe_answer(plan_shapes.AdoptedPlan) | describe_errors(404, *WRITES),
    )
    def undo_plan(
        plan: Annotated[
            int | Absent, Query(description="The number of the plan, for it to be no other.")
        ] = None,
    ) -> Response:
        """Takes the plan back that was adopted last; returns which one that was."""
        return _json(pond.undo_plan(plan))

    return routes


def _json(body: Any) -> Response:
    return Response(json_values.dumps(json_values.to_json_value(body)), media_type=encode.JSON)
