"""Queries that are registered together and differ from one another in their constants only.

Of very many queries of a few shapes, each is added to the registration from its text's constants:
its predicate's key and packed factors are all that the catalog needs. No bound query is made before
somebody asks the query. What is added is what `Registrar` finds for each query by itself, in the
same order; a query that is unusual in any way is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

from millpond.catalog.objects import StreamDef
from millpond.engine.predicates.factor_encoder import FactorEncoder
from millpond.engine.predicates.factor_templates import factor_template
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.bind.templates import Binder, QueryTemplate
from millpond.planner.bind.text_pattern import TextPattern
from millpond.service.queries.query_stems import hash_key
from millpond.service.queries.registration_batch import MatchedQuery, RegistrationBatch
from millpond.service.queries.registration_request import RegistrationRequest
from millpond.state.version import Version
from millpond.work import check_work

#: Options that count only with the bound query, or keep a query from being matched.
_UNUSUAL = {"active", "materialize", "strategy", "tolerate"}
#: So many shapes are looked for in each text, and so many queries are added together.
_MOST_SHAPES, _TOGETHER = 16, 4_096
#: So many queries of a shape are registered by themselves: a pattern of few texts gains nothing.
_ALONE = 3


@dataclass(frozen=True, eq=False)
class _Shape:
    """What the queries of a template share.

    Attributes:
        pattern: Their texts.
        stream_id: The stream they are matched on.
        encoder: Encodes their factors.
        changes_after: As their definitions have it.
    """

    pattern: TextPattern
    stream_id: int
    encoder: FactorEncoder
    changes_after: int


class BulkQueries:
    """Adds queries of known shapes to a registration; for use by one thread.

    Args:
        added: The registration.
        version: What it is collected for.
        binder: Has the templates.
        final: Gives a query's last final instant.
    """

    def __init__(
        self,
        added: RegistrationBatch,
        version: Version,
        binder: Binder,
        final: Callable[[BoundQuery], int],
    ) -> None:
        self._added = added
        self._version = version
        self._binder = binder
        self._final = final
        #: The last one found first.
        self._shapes: list[_Shape] = []
        #: How many queries of a template were registered by themselves; by identity, held.
        self._alone: dict[int, tuple[QueryTemplate, int]] = {}

    def add(self, requests: Sequence[RegistrationRequest]) -> None:
        """Add those of the next requests that are of known shapes, up to one that is not.

        The next one is that behind those that the registration has.

        Raises:
            MillpondError: as `RegistrationBatch.give_name`; CQL-214 for an option.
        """
        start = len(self._added.definitions)
        if start:
            self._look_for_shape(requests[start - 1].text)
        while self._shapes and start < len(requests):
            check_work()
            found = self._recognize(islice(requests, start, start + _TOGETHER))
            self._added.add_matched(self._version, requests[start : start + len(found)], found)
            start += len(found)
            if len(found) < _TOGETHER:
                return

    def _recognize(self, requests: Iterable[RegistrationRequest]) -> list[MatchedQuery]:
        """What is found of the first of the requests, up to one that is of no known shape."""
        rows: dict[_Shape, list[tuple[str, ...]]] = {shape: [] for shape in self._shapes}
        shapes: list[_Shape] = []
        for request in requests:
            if request.options and not _UNUSUAL.isdisjoint(map(str.lower, request.options)):
                break
            for shape in self._shapes:
                if (constants := shape.pattern.find_constants(request.text)) is not None:
                    shapes.append(shape)
                    rows[shape].append(constants)
                    break
            else:
                break
        encoded = {shape: iter(shape.encoder.encode(own)) for shape, own in rows.items()}
        found: list[MatchedQuery] = []
        for shape in shapes:
            key_text, packed = next(encoded[shape])
            found.append((shape.stream_id, hash_key(key_text), packed, shape.changes_after))
        return found

    def _look_for_shape(self, text: str) -> None:
        """Note the shape of a query that was just registered by itself, if there are more of it."""
        template = self._binder.find_template(text)
        if template is None:
            return
        alone = self._alone.get(id(template), (template, 0))[1] + 1
        self._alone[id(template)] = template, alone
        if alone == _ALONE and (shape := self._read_shape(template, text)) is not None:
            self._shapes = [shape, *self._shapes[: _MOST_SHAPES - 1]]

    def _read_shape(self, template: QueryTemplate, text: str) -> _Shape | None:
        """Read what the queries of a template share; None if they are not matched on one stream."""
        bound = template.binding.query
        if len(bound.streams) != 1 or bound.join is not None or not bound.streams[0].shapes:
            return None
        stream = self._version.find(bound.streams[0].stream)
        pattern = template.make_pattern(text)
        if not isinstance(stream, StreamDef) or stream.is_pseudo or pattern is None:
            return None
        lifted = sorted(template.lifted, key=itemgetter(0))
        factors = factor_template(bound.streams[0].shapes, stream.schema)
        return _Shape(
            pattern,
            stream.id,
            FactorEncoder(factors, [place for _, place, _ in lifted]),
            self._added.instant(self._final(bound)),
        )
