"""Compiled functions where nothing can be kept on disk, or nothing is compiled."""

from __future__ import annotations

import io
import sys
from typing import Any

import numba
import pytest
from numba import types

from millpond.model import compiled as compiled_module
from millpond.model.compiled import compiled


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_at_a_terminal_is_told_once_why_it_takes_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled_module, "_spent", [0.0])
    monkeypatch.setattr(sys, "stderr", Terminal())
    for _ in range(9):
        compiled_module._tell_compiling(compiled_module._LONG / 4)
    assert sys.stderr.getvalue().count("compiles its inner loops") == 1
    monkeypatch.setattr(compiled_module, "_spent", [0.0])
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # a file or a pipe
    compiled_module._tell_compiling(60)
    assert sys.stderr.getvalue() == ""
