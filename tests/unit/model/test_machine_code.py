"""Machine code on disk: compiled again exactly when something compiled into it has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millpond.model.compiled import compiled
from millpond.model.machine_code import _Files, read_contents

KERNEL = """
from numba import types
from millpond.model.compiled import compiled
from callee import scaled

@compiled(types.int64(types.int64))
def kernel(number):
    return scaled(number) + 1
"""
CALLEE = """
from numba import njit
from constants import FACTOR

@njit(inline="never")
def scaled(number):
    return FACTOR * number
"""
CONSTANTS = "FACTOR = 2\n"
RUN = "import kernel; print(kernel.kernel(10), sum(kernel.kernel.stats.cache_hits.values()))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "callee.py").write_text(CALLEE)
    (tmp_path / "constants.py").write_text(CONSTANTS)
    return tmp_path


def start(folder: Path, program: str = RUN, **environment: str) -> subprocess.Popen[str]:
    """Starts a new process, which keeps its machine code beside the sources in `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-B", "-c", program],
        cwd=folder,
        env={**kept, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def run(folder: Path) -> tuple[int, int]:
    """What `kernel(10)` gives in a new process, and how much machine code it found on disk."""
    result, loaded = start(folder).communicate(timeout=120)[0].split()
    return int(result), int(loaded)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").iterdir())


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_changed_callee_of_another_file_is_compiled_again(folder: Path) -> None:
    assert run(folder) == (21, 0)
    edit(folder / "callee.py", "FACTOR * number", "FACTOR * number - 5")
    assert run(folder) == (16, 0)
    assert len(files(folder)) == 1  # what it superseded is gone
    edit(folder / "constants.py", "2", "3")
    assert run(folder) == (26, 0)
    assert len(files(folder)) == 1


def test_unchanged_code_is_loaded(folder: Path) -> None:
    assert run(folder) == (21, 0)
    before = [(path, path.stat().st_mtime_ns) for path in files(folder)]
    edit(folder / "kernel.py", "@compiled", "# A remark.\nOTHER = 7\n\n@compiled")
    edit(folder / "constants.py", "FACTOR", "UNUSED = 1\nFACTOR")
    assert run(folder) == (21, 1)
    assert [(path, path.stat().st_mtime_ns) for path in files(folder)] == before


LOADED = "kernel._call is kernel._dispatcher"


def test_what_is_on_disk_is_loaded_when_it_is_first_called(folder: Path) -> None:
    assert run(folder) == (21, 0)
    program = f"from kernel import kernel; print({LOADED}, kernel(10), kernel(11), {LOADED})"
    assert start(folder, program).communicate(timeout=120)[0].split() == [
        "False",
        "21",
        "23",
        "True",
    ]
    whole = "from millpond.model.compiled import load_kernels; load_kernels()"
    program = f"from kernel import kernel; {whole}; print({LOADED}, kernel(10))"
    assert start(folder, program).communicate(timeout=120)[0].split() == ["True", "21"]


def test_a_function_is_compiled_whose_callee_is_not_loaded_yet(folder: Path) -> None:
    edit(folder / "callee.py", "import njit", "import types")
    edit(
        folder / "callee.py",
        '@njit(inline="never")',
        "from millpond.model.compiled import compiled\n@compiled(types.int64(types.int64))",
    )
    assert run(folder) == (21, 0)
    edit(folder / "kernel.py", "+ 1", "+ 2")
    assert run(folder) == (22, 0)
    assert len(files(folder)) == 2
    # Whether the callee is loaded or not, the caller is the same.
    assert run(folder) == (22, 1)
    program = f"import callee; callee.scaled(1); {RUN}"
    assert start(folder, program).communicate(timeout=120)[0].split() == ["22", "1"]


def test_processes_that_compile_at_once_leave_one_whole_file(folder: Path) -> None:
    processes = [start(folder) for _ in range(2)]
    for process in processes:
        assert process.communicate(timeout=120)[0].split()[0] == "21"
    assert len(files(folder)) == 1
    assert run(folder) == (21, 1)


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_half_a_file_is_as_good_as_none(tmp_path: Path, share: float) -> None:
    kept = _Files(tmp_path, "stem", b"contents")
    key = ("signature", "machine", "bytecode")
    assert kept.load(key) is None
    kept.save(key, [b"code"] * 100)
    assert kept.load(key) == [b"code"] * 100
    [path] = tmp_path.iterdir()
    os.truncate(path, int(share * path.stat().st_size))
    assert kept.load(key) is None


def test_where_nothing_can_be_saved_nothing_fails(tmp_path: Path) -> None:
    kept = _Files(tmp_path / "missing", "stem", b"contents")
    key = ("signature", "machine", "bytecode")
    kept.save(key, b"code")
    assert kept.load(key) is None


def test_only_what_is_superseded_is_removed(tmp_path: Path) -> None:
    old, new, other = (
        _Files(tmp_path, stem, contents)
        for stem, contents in (("walk", b"old"), ("walk", b"new"), ("walk_all", b"old"))
    )
    here, elsewhere = ("signature", "machine", ""), ("signature", "another machine", "")
    for kept, key in ((old, here), (old, elsewhere), (other, here), (new, here)):
        kept.save(key, b"code")
    assert old.load(here) is None
    assert [old.load(elsewhere), other.load(here), new.load(here)] == [b"code"] * 3


def test_contents_are_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(
        "def is_named(name):\n    return name in {'a', 'b', 'c', 'd', 'e', 'f'}\n"
    )
    program = (
        "import named\nfrom millpond.model.machine_code import read_contents\n"
        "print(read_contents(named.is_named).hex())"
    )
    found = {
        start(tmp_path, program, PYTHONHASHSEED=seed).communicate(timeout=120)[0]
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 32


SOURCE = """
import math
import numpy as np
from numba import int64, njit, types
from numba.extending import intrinsic
from millpond.model.compiled import compiled

NUMBER = 4
TEXT = "a"
SHAPES = (1, (2.5, None))
TABLE = np.arange(5_000)

@intrinsic
def negated(typing_context, number):
    def generate(context, builder, signature, arguments):
        return builder.neg(arguments[0])
    return types.int64(types.int64), generate

@njit(inline="never")
def deepest(number, times=3):
    return negated(number) * times + NUMBER

@compiled(int64(int64))
def halved(number):
    return number // 2

@njit
def deep(number):
    return deepest(number) + TABLE[0] + len(TEXT) + SHAPES[0]

def closing(shift):
    def inner(number):
        return deep(number) + halved(number) + int64(math.sqrt(number)) + shift + len(np.ones(1))
    return inner

kernel = closing(1)
"""


def contents_of(source: str) -> bytes:
    module = ModuleType("sample")
    exec(compile(source, "<sample>", "exec"), module.__dict__)
    return read_contents(module.kernel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("builder.neg", "builder.not_"),
        ('inline="never"', 'inline="always"'),
        ("NUMBER = 4", "NUMBER = 4.0"),
        ('TEXT = "a"', 'TEXT = "b"'),
        ("2.5, None", "2.5, 0"),
        ("np.arange(5_000)", "np.append(np.arange(4_999), 3)"),
        ("times=3", "times=2"),
        ("number // 2", "number // 3"),
        ("int64(int64)", "types.int32(types.int32)"),
        ("closing(1)", "closing(2)"),
        ("+ int64(", "+ types.int64("),
        ("math.sqrt", "np.sqrt"),
    ],
)
def test_contents_change_with_everything_compiled_in(old: str, new: str) -> None:
    assert old in SOURCE
    assert contents_of(SOURCE.replace(old, new)) != contents_of(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@njit(", "# A remark.\n\n@njit("),
        ("TEXT =", "UNUSED = 1\nTEXT ="),
        ("def closing", "@njit\ndef unused(number):\n    return number\n\ndef closing"),
    ],
)
def test_contents_do_not_change_with_anything_else(old: str, new: str) -> None:
    assert old in SOURCE
    assert contents_of(SOURCE.replace(old, new)) == contents_of(SOURCE)


def test_functions_that_call_each_other_have_contents() -> None:
    source = """
from numba import njit
@njit
def is_even(number):
    return number == 0 or is_odd(number - 1)
@njit
def is_odd(number):
    return number != 0 and is_even(number - 1)
def kernel(number):
    return is_even(number)
"""
    assert contents_of(source) != contents_of(source.replace("number != 0 and", "number > 0 and"))


class Opaque:
    """Nothing that a digest could be computed of."""


@pytest.mark.parametrize("value", [Opaque(), Opaque, sys.modules[compiled.__module__]])
def test_what_has_no_contents_is_refused(value: Any) -> None:
    def kernel(number: int) -> Any:
        return value

    with pytest.raises(TypeError, match=r"kernel refers to value: .* cannot be kept"):
        read_contents(kernel)


def test_every_setting_of_the_compiler_has_its_own_file(folder: Path) -> None:
    assert start(folder, NUMBA_BOUNDSCHECK="1").communicate(timeout=120)[0].split() == ["21", "0"]
    assert run(folder) == (21, 0)
    assert len(files(folder)) == 2
