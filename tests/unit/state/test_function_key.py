"""The key that seals functions, and what is said of a function's code without loading it."""

from __future__ import annotations

import os
import pickle
import stat
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.catalog.objects import FunctionDef
from millpond.errors import MillpondError
from millpond.state.function_key import FunctionKey, list_imports

CODE = cloudpickle.dumps(lambda x: x)
FUNCTION = FunctionDef(3, "f", "__udf_0123456789abcdef_f", ("BIGINT",), "BIGINT", 1.5, 10.0, CODE)


class Evil:
    """A pickle that does something when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_only_the_key_that_sealed_it_knows_it(tmp_path: Path) -> None:
    one, other = FunctionKey(tmp_path / "a" / "key"), FunctionKey(tmp_path / "b" / "key")
    assert not one.is_sealed(FUNCTION)  # there is no key yet, and asking makes none
    assert not one.path.exists()
    sealed = one.seal(FUNCTION)
    assert one.is_sealed(sealed)
    assert FunctionKey(one.path).is_sealed(sealed)
    assert not other.is_sealed(sealed)
    assert other.is_sealed(other.seal(FUNCTION))
    assert not one.is_sealed(other.seal(FUNCTION))


def test_the_key_is_its_owners_alone(tmp_path: Path) -> None:
    key = FunctionKey(tmp_path / "config" / "key")
    before = os.umask(0)
    try:
        sealed = key.seal(FUNCTION)
    finally:
        os.umask(before)
    assert stat.S_IMODE(key.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.path.parent.stat().st_mode) == 0o700
    key.path.chmod(0o640)
    for act in (key.seal, key.is_sealed):
        with pytest.raises(MillpondError, match=r"(?s)CQL-221.*Others than its owner"):
            act(sealed)


OTHERWISE: dict[str, Any] = {
    "name": "g",
    "inside": "__udf_0123456789abcdef_g",
    "arguments": ("DOUBLE",),
    "returns": "DOUBLE",
    "cost": None,
    "max_seconds": 11.0,
    "code": CODE + b".",
    "seal": "00",
}


@pytest.mark.parametrize("field", [f.name for f in fields(FunctionDef) if f.name != "id"])
def test_a_seal_is_of_everything(tmp_path: Path, field: str) -> None:
    key = FunctionKey(tmp_path / "key")
    changed = replace(key.seal(FUNCTION), **{field: OTHERWISE[field]})
    assert not key.is_sealed(changed)


def test_what_code_imports_is_seen_without_loading_it(tmp_path: Path) -> None:
    mark = tmp_path / "loaded"
    code = pickle.dumps(Evil(mark))
    assert list_imports(replace(FUNCTION, code=code)) == [f"{os.system.__module__}.system"]
    assert list_imports(replace(FUNCTION, code=b"\xff")) == ["(no pickle)"]
    imported = list_imports(FUNCTION)
    assert "cloudpickle.cloudpickle._make_function" in imported
    assert not [name for name in imported if name.startswith(("_", "/", "(")) or ".py" in name]
    memoized = b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x88h\x00h\x01\x93."
    assert list_imports(replace(FUNCTION, code=memoized)) == ["posix.system"]
    assert not mark.exists()
