"""Syntax of other systems that CQL does not have: errors that say what CQL has instead."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.token_reader import TokenReader
from millpond.errors import MillpondError

#: What SHOW lists in other systems, and the statement that lists the same here.
_SHOWN_ELSEWHERE = {
    "TABLE": "RELATIONS",
    "VIEW": "RELATIONS",
    "TOPIC": "STREAMS",
    "SOURCE": "STREAMS",
    "SINK": "STREAMS",
    "JOB": "QUERIES",
    "DATABASE": "ENTITIES",
    "SCHEMA": "ENTITIES",
    "CATALOG": "ENTITIES",
    "COLUMN": "ENTITIES",
}
_PIVOT = "Write an aggregate for each value: sum(v) FILTER (WHERE k = 'a') AS a."
_UNPIVOT = "Write a SELECT for each column, with UNION ALL between them."
#: Words that start statements in other systems, and what to write here.
_STARTS = {
    "SUBSCRIBE": "Write FETCH name [AFTER cursor] for the changes of a standing query; over HTTP "
    "and in Python a subscription follows them.",
    "TAIL": "Write FETCH name [AFTER cursor] for the changes of a standing query.",
    "DESC": "Write DESCRIBE name.",
    "COPY": "Write CREATE STREAM name (column TYPE, ...) USING csv OPTIONS (path '...'), or "
    "CREATE RELATION likewise.",
    "PRINT": "Write SELECT * FROM name, or FETCH name for its changes.",
    "EMIT": "Changes are read with FETCH name.",
    "TERMINATE": "Write DROP QUERY name, or ALTER QUERY name SET (active = false).",
    "MERGE": "Rows whose PRIMARY KEY is there are changed with UPDATE.",
    "UPSERT": "Rows whose PRIMARY KEY is there are changed with UPDATE.",
    "TRUNCATE": "Write DELETE FROM name.",
    **dict.fromkeys(
        ("BEGIN", "START", "COMMIT", "ROLLBACK"),
        "A statement is done wholly or not at all; there are no transactions of several.",
    ),
    **dict.fromkeys(("PAUSE", "KILL"), "Write ALTER QUERY name SET (active = false)."),
    "LIST": "Write SHOW STREAMS, SHOW RELATIONS or SHOW QUERIES; SHOW ENTITIES lists all there is.",
    **dict.fromkeys(
        ("SET", "RESET", "PRAGMA"),
        "Write ALTER SYSTEM SET (name = value) for a setting, or ALTER QUERY name SET "
        "(option = value).",
    ),
    "PIVOT": _PIVOT,
    "UNPIVOT": _UNPIVOT,
    "DECLARE": "There are no variables and no cursors to declare: FETCH name AFTER cursor goes on "
    "behind an earlier FETCH.",
    "USE": "A pond is one database: names stand alone.",
}
#: Two words that stand together in other systems, and what to write here.
_PAIRS = {
    ("CROSS", "APPLY"): "Write CROSS JOIN LATERAL (SELECT ...) AS x.",
    ("OUTER", "APPLY"): "Write LEFT JOIN LATERAL (SELECT ...) AS x ON TRUE.",
    ("LEFT", "ASOF"): "Write ASOF LEFT JOIN.",
    ("PIVOT", "("): _PIVOT,
    ("UNPIVOT", "("): _UNPIVOT,
    ("MINUS", "SELECT"): "Write EXCEPT, or EXCEPT ALL to count equal rows.",
    ("TABLESAMPLE", "("): "Write SAMPLE(10) behind the stream for a tenth of its elements.",
}
_WINDOWS_ELSEWHERE = ("TUMBLING", "TUMBLE", "HOPPING", "HOP", "SESSION", "SLIDING")
_SIZES = (TokenType.NUMBER, TokenType.STRING, TokenType.INTERVAL)
#: In other systems, names of functions that read files begin so, or end in `_scan`.
_READERS = ("read_", "glob", "parquet_", "sniff_")


def start_hint(word: str) -> str | None:
    """Say what to write instead of a statement that starts with a word in another system."""
    return _STARTS.get(word.upper())


def show_hint(word: str) -> str | None:
    """Say what to write instead of `SHOW word`."""
    shown = _SHOWN_ELSEWHERE.get(word.upper().removesuffix("S"))
    return f"Write SHOW {shown}; SHOW ENTITIES lists all there is." if shown else None


def clause_error(at: TokenReader) -> MillpondError | None:
    """Make the error of a clause that CQL writes differently, if one starts here."""
    word, behind = at._curr.text.upper() if at._curr else "", at._next
    follows = behind.text.upper() if behind else ""
    if (hint := _PAIRS.get((word, follows))) is not None:
        shown = word if follows in ("(", "SELECT") else f"{word} {follows}"
        return at.fault(f"{shown} is not part of CQL", hint=hint)
    if word == "(" and at._prev and at._prev.text.upper() == "SESSION":
        return at.fault(
            "SESSION is not part of CQL",
            hint="Write TUMBLE(column, INTERVAL 1 MINUTE), or a window in brackets: "
            "stream [RANGE 1 MINUTE].",
        )
    if word == "SAMPLE" and behind and behind.token_type is TokenType.NUMBER:
        return at.fault("SAMPLE without brackets", hint=f"Write SAMPLE({follows}).")
    if word == "EMIT" and follows in ("CHANGES", "FINAL", "AFTER", "ON", "STREAM"):
        return at.fault(
            f"EMIT {follows} is not part of CQL",
            detail="Every standing query has an answer, which INVOKE gives, and changes.",
            hint="Leave it out, register the query with CREATE QUERY name AS ..., and read its "
            "changes with FETCH name.",
        )
    if word == "FOR" and follows in ("SYSTEM_TIME", "SYSTEM"):
        return at.fault(
            "FOR SYSTEM_TIME is not part of CQL",
            detail="An answer is as of one instant; a join of an earlier instant names it.",
            hint="Write INVOKE name AT TIMESTAMP '...' for the answer of an instant, or ASOF JOIN "
            "relation ON a.k = b.k AND a.ts >= b.ts.",
        )
    if word == "MATCH_RECOGNIZE":
        return at.fault(
            "MATCH_RECOGNIZE is not part of CQL",
            detail="There are no patterns over the order of rows.",
            hint="Join windows of the stream: FROM s [RANGE 1 MINUTE] a, s [RANGE 1 MINUTE] b "
            "WHERE a.k = b.k AND a.ts < b.ts.",
        )
    if at._prev and at._prev.text.upper() == "TOP" and at._curr.token_type is TokenType.NUMBER:
        return at.fault(
            f"TOP {word} is not part of CQL",
            hint=f"Write ORDER BY column DESC LIMIT {word} at the end of the query.",
        )
    behind_next = at._tokens[at._index + 2 : at._index + 3]
    named = bool(behind_next) and behind_next[0].text.upper() == "AS"  # SQL's own WINDOW clause
    if word == "WINDOW" and follows in _WINDOWS_ELSEWHERE and not named:
        return at.fault(
            f"WINDOW {follows} is not part of CQL",
            detail="A window stands in brackets behind the name of a stream.",
            hint="Write stream [RANGE 1 MINUTE SLIDE 1 MINUTE], or sliding at every instant "
            "stream [RANGE 1 MINUTE].",
        )
    if word in _WINDOWS_ELSEWHERE and follows == "(" and at._prev.text.upper() != "AS":
        return at.fault(
            f"{word} does not stand behind a stream",
            detail="A window behind the name of a stream stands in brackets.",
            hint="Write stream [RANGE 1 MINUTE SLIDE 1 MINUTE] for the last minute, every minute, "
            "or GROUP BY TUMBLE(column, INTERVAL 1 MINUTE).",
        )
    if (word in ("RANGE", "ROWS") and behind and behind.token_type in _SIZES) or (
        word == "RANGE" and follows in ("UNBOUNDED", "INTERVAL")
    ):
        return _bare_window_error(at, f"{word} {follows}")
    if word == "PARTITION BY" or (word == "PARTITION" and follows == "BY"):
        return _bare_window_error(at, "PARTITION BY column ROWS n")
    if word == "FETCH" and follows in ("FIRST", "NEXT"):
        return at.fault(f"FETCH {follows} is not part of CQL", hint="Write LIMIT n.")
    return None


def top_error(at: TokenReader) -> MillpondError | None:
    """Make the error of `TOP (5) column`, if that starts here."""
    ahead = at._tokens[at._index : at._index + 5]
    kinds = [token.token_type for token in ahead[1:4]]
    behind = ahead[4] if len(ahead) == 5 else None
    if not ahead or ahead[0].text.upper() != "TOP" or behind is None:
        return None
    if kinds != [TokenType.L_PAREN, TokenType.NUMBER, TokenType.R_PAREN]:
        return None
    if behind.token_type not in (TokenType.VAR, TokenType.STAR, TokenType.WITH):
        return None
    count = ahead[2].text
    return at.fault(
        f"TOP ({count}) is not part of CQL",
        hint=f"Write ORDER BY column DESC LIMIT {count} at the end of the query.",
    )


def _bare_window_error(at: TokenReader, window: str) -> MillpondError:
    shown = {"RANGE": "RANGE 1 MINUTE", "ROWS": "ROWS 10"}.get(window.split()[0], window)
    return at.fault(
        f"{window.split()[0]} stands outside brackets",
        detail="A window stands in brackets behind the name of a stream.",
        hint=f"Write stream [{shown}].",
    )


def type_error(at: TokenReader, type: str) -> MillpondError | None:
    """Make the error of a type's part in angle brackets, if that stands here."""
    if at._curr is None or at._curr.text != "<" or at._next is None:
        return None
    part = at._next.text.upper()
    hint = {
        "ARRAY": f"Write {part}[].",
        "LIST": f"Write {part}[].",
        "MAP": "Declare it JSON, or an array of structs: STRUCT(key VARCHAR, value INTEGER)[].",
    }.get(type.upper(), "Write STRUCT(name TYPE, ...).")
    return at.fault(f"{type.upper()}<...> is not how CQL writes a type", hint=hint)


def table_function_hint(name: str) -> str:
    """Say what to write instead of a table function in FROM."""
    if name.upper() == "UNNEST":
        return "Write unnest in the SELECT list: SELECT k, unnest(list) AS x FROM s."
    return "Name a stream or a relation, or write a query in brackets."


def file_error(at: TokenReader, file: str) -> MillpondError:
    """Make the error of a file in FROM."""
    kind = next((k for k in ("json", "parquet", "orc", "text") if k in file.lower()), "csv")
    return at.fault(
        "FROM reads streams, relations and queries, not files",
        detail="What reads a file is declared, with its columns.",
        hint=f"Write CREATE RELATION name (column TYPE, ...) USING {kind} OPTIONS (path '...') "
        "for rows that are read once, CREATE STREAM likewise for elements.",
    )


def is_file_reader(name: str) -> bool:
    """Whether a table function of a name reads files in other systems."""
    lower = name.lower()
    return lower.startswith(_READERS) or lower.endswith("_scan")
