"""Compiled functions where nothing can be kept on disk."""

from __future__ import annotations

from typing import Any

import numba
import pytest
from numba import types

from millpond.model import compiled as compiled_module
from millpond.model.compiled import compiled


def twice(number: int) -> int:
    return 2 * number


def test_without_a_place_for_the_cache_a_function_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def njit(signature: Any, **options: Any) -> Any:
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function 'twice': no locator available")
        return numba.njit(signature, **options)

    monkeypatch.setattr(compiled_module, "njit", njit)
    assert compiled(types.int64(types.int64))(twice)(21) == 42


def test_other_failures_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(signature: Any, **options: Any) -> Any:
        raise RuntimeError("something else")

    monkeypatch.setattr(compiled_module, "njit", njit)
    with pytest.raises(RuntimeError, match="something else"):
        compiled(types.int64(types.int64))(twice)
