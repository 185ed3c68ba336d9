"""Compiled functions: where nothing can be kept on disk, and what is said while they are made."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any

import numba
import numpy as np
import pytest
from numba import types

from millpond.model import compiled as compiled_module
from millpond.model.compiled import EVERY, LONG, CompileProgress, called, compiled


def twice(number: int) -> int:
    return 2 * number


def fail_with(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def cache_of(function: Any) -> Any:
        raise RuntimeError(message)

    monkeypatch.setattr(compiled_module, "cache_of", cache_of)


def test_without_a_place_for_the_cache_a_function_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(monkeypatch, "cannot cache function 'twice': no locator available")
    kernel = compiled(types.int64(types.int64))(twice)
    assert kernel(21) == 42
    assert kernel.signatures == [(types.int64,)]


def test_other_failures_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, "something else")
    with pytest.raises(RuntimeError, match="something else"):
        compiled(types.int64(types.int64))(twice)


def test_a_function_takes_no_other_types_than_it_was_compiled_for() -> None:
    kernel = compiled(types.int64(types.int64))(twice)
    with pytest.raises(TypeError, match="No matching definition"):
        kernel("a text")


def test_with_numba_switched_off_a_function_stays_what_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    assert compiled(types.int64(types.int64))(twice) is twice


def test_a_called_function_does_not_count_references_to_its_arrays() -> None:
    def pick(one: Any, other: Any, place: int) -> int:
        array = one if place > 0 else other
        return int(array[place])

    counts = {}
    for make in (called, numba.njit):
        kernel = make(pick)
        assert kernel(np.array([1, 2]), np.array([3, 4]), 0) == 3
        (code,) = kernel.inspect_llvm().values()
        counts[make] = code.count("call void @NRT_incref")
    assert counts[called] == 0 < counts[numba.njit]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Compiling:
    """Functions that are compiled one after the other."""

    def __init__(self) -> None:
        self.now = 100.0
        self.progress = CompileProgress(lambda: self.now)

    def compile(self, seconds: float, kept: bool = True) -> None:
        self.now += seconds
        self.progress.add(seconds, kept=kept)


@pytest.fixture
def compiling() -> Compiling:
    return Compiling()


def test_the_log_has_the_beginning_the_progress_and_the_end(
    compiling: Compiling, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millpond.compile")
    for _ in range(100):
        compiling.compile(0.3)
    compiling.progress.finish()
    compiling.progress.finish()
    begins, *progress, ends = caplog.messages
    assert "compiles its inner loops" in begins
    assert progress == ["compiled 41 functions in 12 s", "compiled 75 functions in 22 s"]
    assert ends == "compiled all 100 functions in 30 s"


def test_nothing_is_said_of_what_is_short(
    compiling: Compiling, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "millpond.compile")
    monkeypatch.setattr(sys, "stderr", Terminal())
    compiling.compile(LONG * 0.9, kept=False)
    compiling.progress.finish()
    compiling.now += EVERY
    compiling.compile(LONG * 0.9)
    assert caplog.messages == []
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_it_is_said_if_every_start_will_compile_again(
    compiling: Compiling, caplog: pytest.LogCaptureFixture
) -> None:
    compiling.compile(60)
    compiling.compile(1, kept=False)
    compiling.progress.finish()
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "1 compiled functions cannot be kept" in warning.getMessage()


def test_a_person_at_a_terminal_is_told_once_where_the_log_is_quiet(
    compiling: Compiling, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "millpond.compile")
    monkeypatch.setattr(sys, "stderr", Terminal())
    for _ in range(9):
        compiling.compile(LONG / 4)
    assert sys.stderr.getvalue().count("compiles its inner loops") == 1  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # a file or a pipe
    Compiling().compile(60)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
