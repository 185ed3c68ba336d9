"""Reading `WITH PREFERENCE …`, and budgets."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.from_items import FromParser
from millpond.cql.tree.nodes import PREFERENCE, Preference
from millpond.cql.tree.places import place
from millpond.model.budget import Budget, parse_budget


class PreferenceParser(FromParser):
    """Reads what a query wants to see first."""

    def read_preference(self, query: exp.Expr) -> None:
        """Read `WITH PREFERENCE …` behind the outermost query into it, if it comes next."""
        if not self.sees("WITH", "PREFERENCE"):
            return
        start = self.here()
        self._advance(2)
        order = next((o for o in ("ASC", "DESC", "WEIGHTED") if self.accept(o)), "DESC").lower()
        value = self.scalar("an expression of estimates behind PREFERENCE")
        fade, budget = 1.0, None
        if self.accept("FADE"):
            self.expect("FACTOR", hint="Write FADE FACTOR 0.8.")
            fade = self._fade_factor()
        if self.accept("BUDGET"):
            budget = self.budget(fractions=True)
        node = Preference(order=order, this=value, fade=fade, budget=budget)
        place(node, self.since(start))
        if not isinstance(query, exp.Select):
            raise self.fault(
                "WITH PREFERENCE stands behind a SELECT",
                detail="A preference ranks the regions of one or two streams in FROM; what it "
                "finds is a stream of its own.",
                hint="Drop ISTREAM, UNION or the brackets around the query.",
                span=self.since(start),
            )
        query.set(PREFERENCE, node)

    def _fade_factor(self) -> float:
        token = self._curr
        if token.token_type is not TokenType.NUMBER or len(token.text) > 30:
            self.fail_expecting("a number behind FADE FACTOR", "Write FADE FACTOR 0.8.")
        self._advance()
        if not 0 < (fade := float(token.text)) <= 1:
            raise self.fault(
                "the fade factor is above 0 and at most 1",
                hint="1 makes old regions as promising as new ones.",
                span=self.behind(),
            )
        return fade

    def budget(self, fractions: bool = False) -> Budget:
        """Read a budget's text behind BUDGET."""
        text, span = self.string("a budget")
        try:
            return parse_budget(text, fractions)
        except ValueError as error:
            raise self.fault(f"'{text[:40]}' is no budget", hint=f"{error}.", span=span) from None
