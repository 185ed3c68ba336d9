"""What a caller may do: the one place where a caller's rights are asked.

An admin may do everything. A reader sees, invokes, follows and explains the queries of the reader's
own owner, and asks, over the streams and relations the token is granted. A writer also registers,
alters and drops own queries, and writes rows into granted streams and relations. What a caller may
not see is answered as if it was not there, without suggestions of other names.

A statement of a kind that is not in the table here is the admin's.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from millpond.api.rights.caller import Caller, Role
from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql.tree import statements
from millpond.cql.tree.explain_levels import Level
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError, Span
from millpond.model.secret_options import find_literal_secret
from millpond.planner.bind.text_names import TextNames
from millpond.planner.resolve.named_objects import (
    NamedObject,
    find_named_objects,
    find_trees,
    list_named_objects,
)
from millpond.planner.resolve.names import Names

#: The least role for each kind of statement. What is about an object also needs that object.
STATEMENT_ROLES: dict[type[Statement], Role] = {
    statements.CreateStream: Role.ADMIN,
    statements.CreateRelation: Role.ADMIN,
    statements.CreateDerived: Role.ADMIN,
    statements.CreateSummary: Role.ADMIN,
    statements.CreateSink: Role.ADMIN,
    statements.AlterSystem: Role.ADMIN,
    statements.AlterConstraint: Role.ADMIN,
    statements.AddColumn: Role.ADMIN,
    statements.ResetClock: Role.ADMIN,
    statements.CreateQuery: Role.WRITER,
    statements.Alter: Role.WRITER,
    statements.Drop: Role.WRITER,
    statements.Insert: Role.WRITER,
    statements.Update: Role.WRITER,
    statements.Delete: Role.WRITER,
    statements.Heartbeat: Role.WRITER,
    statements.Ask: Role.READER,
    statements.Invoke: Role.READER,
    statements.Fetch: Role.READER,
    statements.Explain: Role.READER,
    statements.Describe: Role.READER,
    statements.Show: Role.READER,
    statements.ShowCreate: Role.READER,
}

#: The names in the texts of all callers.
_NAMES = TextNames()

#: What to do about a secret in a webhook's URL.
_SIGNED = "Leave it out: whoever receives can tell by the signature (key_env) who has sent."

#: What SHOW lists of all callers' work, unfiltered.
_SHOWN_TO_ADMINS = ("entities", "functions", "sinks", "constraints")
#: The levels of EXPLAIN that name other queries.
_LEVELS_OF_ADMINS = (Level.SHARED, Level.RUNTIME)


class Rights:
    """The rights of one caller, over the names there are now."""

    def __init__(self, caller: Caller, names: Names) -> None:
        self.caller = caller
        self._names = names

    def need(self, role: Role, what: str) -> None:
        """Raise SERVE-713 unless the caller has at least a role."""
        if self.caller.role < role:
            raise _role_error(self.caller, role, what)

    def owns(self, query: QueryDef) -> bool:
        """Whether a query is the caller's."""
        return self.caller.is_admin or query.options.get("owner", "") == self.caller.owner

    def may_name(self, found: object) -> bool:
        """Whether a definition is the caller's query, or a stream or relation that is granted."""
        if isinstance(found, QueryDef):
            return self.owns(found)
        return isinstance(found, StreamDef | RelationDef) and self.caller.is_granted(found.name)

    def may_read_query(self, query: QueryDef) -> bool:
        """Whether a query is the caller's, and over nothing but what the caller is granted."""
        if not self.owns(query):
            return False
        try:
            self.check_text(query.text)
        except MillpondError:
            return False
        return True

    def may_know_dropped(self, query: QueryDef) -> bool:
        """Whether a query that was dropped was the caller's, over nothing but what is granted.

        What it read may be dropped too, so its grants are looked up by name.
        """
        if self.caller.is_admin:
            return True
        named = list_named_objects(query.text)
        return self.owns(query) and all(self.caller.is_granted(each.name) for each in named)

    def check_query(self, query: QueryDef) -> None:
        """Raise CQL-201 unless the query is the caller's and reads only what is granted."""
        if not self.owns(query):
            raise missing_query_error(query.name)
        try:
            self.check_text(query.text)
        except MillpondError as error:
            error.text = error.span = None  # the caller has sent the name alone
            raise

    def check_readable(self, name: str, text: str | None = None, span: Span | None = None) -> None:
        """Raise CQL-201 unless a name is that of a stream or relation the caller is granted."""
        found = self._names.find(name)
        if not isinstance(found, StreamDef | RelationDef) or not self.caller.is_granted(found.name):
            raise _missing_error(name, text, span)

    def check_text(self, text: str) -> None:
        """Raise CQL-201 unless a query's text names only what the caller may read."""
        if not self.caller.is_admin:
            with suppress(MillpondError):
                self._check_names(_NAMES.find(text), text)
                return
            self._check_names(list_named_objects(text), text)  # says where the name is

    def check_level(self, level: str) -> None:
        """Raise SERVE-713 for a level of EXPLAIN that shows others' queries."""
        if level in _LEVELS_OF_ADMINS:
            self.need(Role.ADMIN, f"EXPLAIN {level.upper()} shows the queries of all owners")

    def check_plan(self, text: str) -> None:
        """Raise CQL-201 unless the caller may read all that the plan of a query's text shows.

        A derived relation stands in a plan with all that it is made from.
        """
        if self.caller.is_admin:
            return
        waiting, seen = [text], set()
        while waiting:
            current = waiting.pop()
            self.check_text(current)
            for named in list_named_objects(current):
                found = self._names.find(named.name)
                if isinstance(found, RelationDef) and found.view and found.id not in seen:
                    seen.add(found.id)
                    waiting.append(found.view)

    def own_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """A new query's options, with the caller's owner if they name none.

        Raises:
            MillpondError: SERVE-713, they name another owner, and the caller is no admin.
        """
        self.check_owner_option(options)
        if not self.caller.owner or any(name.lower() == "owner" for name in options):
            return options
        return {**options, "owner": self.caller.owner}

    def check_owner_option(self, options: dict[str, Any]) -> None:
        """Raise SERVE-713 if options name another owner, and the caller is no admin."""
        for name, value in options.items():
            if name.lower() == "owner" and value != self.caller.owner and not self.caller.is_admin:
                raise MillpondError(
                    "SERVE-713",
                    "the token does not make queries of other owners",
                    hint="Leave out the owner: it is the token's.",
                )

    # -- statements ----------------------------------------------------------------------------

    def check_statement(self, statement: Statement) -> Statement:
        """Return a statement as it may be executed for the caller.

        Raises:
            MillpondError: SERVE-713, the role is not enough; CQL-201, the statement names what the
                caller may not see; POND-414, the statement has a secret written out.
        """
        if isinstance(statement, statements.CreateQuery):
            self.need(Role.WRITER, "CREATE QUERY")
            statement = replace(statement, options=self.own_options(statement.options))
            found = self._names.find(statement.name)
            if isinstance(found, QueryDef) and not self.owns(found):
                # To the caller the name is taken, whoever's it is.
                statement = replace(statement, if_not_exists=False, or_replace=False)
        refuse_literal_secret(statement)
        if self.caller.is_admin:
            return statement
        role = STATEMENT_ROLES.get(type(statement), Role.ADMIN)
        self.need(role, f"{statement.text.split(None, 1)[0].upper()} statements like this")
        self._check_names(find_named_objects(find_trees(statement)), statement.text)
        self._check_object(statement)
        return statement

    def has_nothing_to_drop(self, statement: Statement) -> bool:
        """Whether a DROP QUERY IF EXISTS names a query that is missing, or not the caller's.

        Such a statement must not be executed, or it would drop a query that another owner makes
        meanwhile.
        """
        if not isinstance(statement, statements.Drop) or not statement.if_exists:
            return False
        if statement.kind != "query" or self.caller.is_admin:
            return False
        found = self._names.find(statement.name)
        return not isinstance(found, QueryDef) or not self.owns(found)

    def _check_object(self, statement: Statement) -> None:
        """Check the object a statement is about."""
        match statement:
            case statements.Alter() | statements.Drop() if statement.kind != "query":
                self.need(Role.ADMIN, f"a {statement.kind} is everybody's, and changing it")
            case statements.ShowCreate() if statement.kind != "query":
                self.need(Role.ADMIN, f"SHOW CREATE {statement.kind.upper()} shows its source")
            case statements.Drop() if statement.cascade:
                self.need(Role.ADMIN, "CASCADE drops what others have made")
            case statements.Drop() if self.has_nothing_to_drop(statement):
                pass
            case statements.Alter():
                self.check_owner_option(statement.options)
                self._check_own(statement.name, statement)
            case statements.Drop() | statements.Invoke() | statements.ShowCreate():
                self._check_own(statement.name, statement)
            case (
                statements.Insert()
                | statements.Update()
                | statements.Delete()
                | statements.Heartbeat()
            ):
                self.check_readable(statement.name, statement.text, statement.name_span)
            case statements.Fetch() | statements.Describe():
                self._check_seen(statement.name, statement)
            case statements.Explain():
                self.check_level(statement.level)
                if statement.name is not None:
                    self._check_seen(statement.name, statement)
                self.check_plan(self._planned_text(statement))
            case statements.Show() if statement.what in _SHOWN_TO_ADMINS:
                self.need(Role.ADMIN, f"SHOW {statement.what.upper()}")

    def _planned_text(self, statement: statements.Explain) -> str:
        if statement.name is None:
            return statement.query_text
        return planned_text(self._names.find(statement.name)) or "SELECT 1"

    def _check_own(self, name: str, statement: Statement) -> None:
        found = self._names.find(name)
        if not isinstance(found, QueryDef) or not self.owns(found):
            raise missing_query_error(name, statement.text, statement.name_span)
        self.check_text(found.text)

    def _check_seen(self, name: str, statement: Statement) -> None:
        """Check a name that may be of any kind; what is missing and what is hidden look alike."""
        found, summary = self._names.find(name), self._names.summary(name)
        if isinstance(found, QueryDef) and self.owns(found):
            self.check_text(found.text)
        elif self.may_name(found):
            return
        elif found is not None or summary is None or not self.caller.is_granted(summary.stream):
            kind = "query, stream or relation"
            raise _missing_error(name, statement.text, statement.name_span, kind)

    def list_hidden_facts(self, statement: Statement) -> tuple[str, ...]:
        """What DESCRIBE keeps from the caller: a granted one's text over what is not granted."""
        if not isinstance(statement, statements.Describe):
            return ()
        found = self._names.find(statement.name)
        text = planned_text(found)
        if text is None or isinstance(found, QueryDef):
            return ()
        try:
            self.check_plan(text)
        except MillpondError:
            return ("query",)
        return ()

    def _check_names(self, every: Iterable[NamedObject], text: str) -> None:
        """Raise CQL-201 for the first name of a stream, relation or summary that is not granted."""
        for named in every:
            if named.is_summary:
                summary = self._names.summary(named.name)
                if summary is None or not self.caller.is_granted(summary.stream):
                    raise _missing_error(named.name, text, named.span, "summary")
                continue
            found = self._names.find(named.name)
            if not isinstance(found, StreamDef | RelationDef):
                if named.may_be_local:
                    continue
                raise _missing_error(named.name, text, named.span)
            if not self.caller.is_granted(found.name):
                # Even if it may be an entry of WITH: binding has the last word about that.
                raise _missing_error(named.name, text, named.span)


def refuse_literal_secret(statement: Statement) -> None:
    """Raise POND-414 if a source's or sink's options have a secret written out; do not show it."""
    name = find_outer_secret(statement)
    if name is not None:
        raise MillpondError(
            "POND-414",
            f'the option "{name}" has a secret written out',
            detail="Definitions are kept and shown as they were written.",
            hint=_SIGNED
            if name == "url" and not hasattr(statement, "source")
            else f"Write {name} secret('name'), and the secret into the server's file of secrets.",
        )


def find_outer_secret(statement: Statement) -> str | None:
    """The first option of a statement's source or sink with a secret written out; None without."""
    if isinstance(statement, statements.CreateSink) or (
        isinstance(statement, statements.Alter) and statement.kind == "sink"
    ):
        texts = {name: value for name, value in statement.options.items() if isinstance(value, str)}
        return find_literal_secret(texts)
    source = getattr(statement, "source", None)
    while source is not None:
        if (name := find_literal_secret(source.options)) is not None:
            return name
        source = source.then
    return None


def planned_text(found: object) -> str | None:
    """The text of the query behind a definition; None of one that has none."""
    match found:
        case QueryDef():
            return found.text
        case StreamDef():
            return found.derived.text if found.derived is not None else None
        case RelationDef():
            return found.view
    return None


def missing_query_error(
    name: str, text: str | None = None, span: Span | None = None
) -> MillpondError:
    """The error of a query that is not there, or not the caller's: nobody can tell which."""
    return MillpondError(
        "CQL-201",
        f'no query "{name[:100]}"',
        hint="SHOW QUERIES lists yours.",
        text=text,
        span=span,
    )


def _missing_error(
    name: str, text: str | None, span: Span | None, kind: str = "stream or relation"
) -> MillpondError:
    return MillpondError(
        "CQL-201",
        f'no {kind} "{name[:100]}"',
        detail="It is not there, or the token is not granted it.",
        hint="SHOW STREAMS and SHOW RELATIONS list what the token is granted.",
        text=text,
        span=span,
    )


def _role_error(caller: Caller, role: Role, what: str) -> MillpondError:
    return MillpondError(
        "SERVE-713",
        f"the token has the role {caller.role.word}, and this needs {role.word}",
        detail=f"It is about this: {what}.",
        hint="Ask the operator: millpond token add makes tokens.",
    )
