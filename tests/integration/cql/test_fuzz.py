"""Any text whatever is read, or refused with a code and a place; what is read prints back."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.cql import parse_query, parse_script, parse_statement, print_statement, to_duckdb
from millpond.cql.print.printer import meaning
from millpond.cql.tree.statements import Ask
from millpond.errors import MillpondError

CORPUS = (Path(__file__).parent / "corpus.cql").read_text(encoding="utf-8")
TEXTS = [statement.text for statement in parse_script(CORPUS)]
CODES = {"CQL-101", "CQL-102", "CQL-103", "CQL-207", "CQL-210", "CQL-217", "CQL-218", "CQL-301"}

VOCABULARY = (Path(__file__).parent / "vocabulary.txt").read_text(encoding="utf-8").split()

words = st.lists(st.sampled_from(VOCABULARY), max_size=16).map(" ".join)


@st.composite
def mutants(draw: st.DrawFn) -> str:
    """A text of the corpus with words put in, taken out and exchanged."""
    text = draw(st.sampled_from(TEXTS)).split(" ")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(["insert", "delete", "exchange", "graft"])):
            case "insert":
                text.insert(at, draw(st.sampled_from(VOCABULARY)))
            case "delete":
                del text[at : at + 1]
            case "exchange":
                text[at : at + 1] = [draw(st.sampled_from(VOCABULARY))]
            case _:
                other = draw(st.sampled_from(TEXTS)).split(" ")
                start = draw(st.integers(0, len(other) - 1))
                text[at:at] = other[start : start + draw(st.integers(1, 6))]
    return " ".join(text)


def check_refusal(error: MillpondError, text: str) -> None:
    assert error.code in CODES
    assert error.text == text
    assert error.span is not None
    assert 0 <= error.span.start <= error.span.end <= len(text)
    assert error.primary != "the statement cannot be read"
    assert error.render()


def check(text: str) -> None:
    try:
        statements = parse_script(text)
    except MillpondError as error:
        check_refusal(error, text)
        return
    for statement in statements:
        assert text[statement.offset :].startswith(statement.text)
        printed = print_statement(statement)
        again = parse_statement(printed)
        assert meaning(again) == meaning(statement)
        assert print_statement(again) == printed
        if isinstance(statement, Ask):
            assert parse_query(statement.text) == statement.query


@given(words)
@settings(max_examples=150)
@example("SELECT , all FROM s")
@example("SELECT . 5. FROM s")
@example("SELECT a FROM s [NOW] (a, b)")
@example("SELECT INTERVAL a (a) DAY")
@example("SELECT {fn a(b) FROM s")
@example("SELECT /*+ hint */ a FROM s /* sqlglot.anonymous */")
def test_words(text: str) -> None:
    check(text)


@given(words)
@settings(max_examples=150)
def test_words_in_a_query(text: str) -> None:
    check(f"SELECT {text} FROM s")


@given(words)
@settings(max_examples=80)
def test_words_in_a_window(text: str) -> None:
    check(f"SELECT a FROM s [{text}]")


@given(mutants())
@settings(max_examples=400)
def test_mutants(text: str) -> None:
    check(text)


@given(st.sampled_from(TEXTS), st.data())
@settings(max_examples=150)
def test_cut_texts(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    check(text[: data.draw(st.integers(0, len(text)))])
    check(text[start:])


@given(st.text(max_size=40))
@settings(max_examples=150)
def test_any_text(text: str) -> None:
    check(text)


@given(st.text(max_size=12), st.sampled_from(["SELECT {} FROM s", "INVOKE {}", "SELECT '{}'"]))
@settings(max_examples=150)
def test_any_text_inside_a_statement(text: str, around: str) -> None:
    check(around.format(text))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_text_can_be_a_string_or_a_name(text: str) -> None:
    string, name = text.replace("'", "''"), text.replace('"', '""')
    query = parse_query(f'SELECT \'{string}\' AS "{name}" FROM "{name}"')
    (selected,) = query.args["expressions"]
    assert selected.this.name == text
    assert selected.alias == query.args["from_"].this.name == text
    check(f'SELECT \'{string}\' AS "{name}" FROM "{name}"')
    assert to_duckdb(selected.this) == f"'{string}'"
