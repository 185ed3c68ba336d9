"""Checks of a user-defined function, and its code by value.

The code is stored by value: when the store is opened again, the module it comes from need not
exist, but the packages it imports must.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle

from millpond.errors import MillpondError
from millpond.model.functions import find_function
from millpond.model.schema import ALIASES, ARROW_TYPES, canonical_type
from millpond.planner.resolve.names import did_you_mean

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def check_name(name: str) -> None:
    """Raise CQL-221 for a name that is no plain word, CQL-208 for that of a function of SQL."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise refused_error(name, "its name is not a plain word", "Use letters, digits and _.")
    if find_function(name) is not None:
        raise MillpondError(
            "CQL-208",
            f'the name "{name}" is taken by a function of SQL',
            hint="Choose another name.",
        )


def check_arity(name: str, function: Any, arguments: Sequence[str]) -> None:
    """Raise CQL-221 for what is not a function of so many arguments."""
    if not callable(function):
        raise refused_error(name, "it is not callable", "Pass a function of Arrow arrays.")
    if isinstance(arguments, str) or not arguments:
        raise refused_error(
            name,
            "its arguments are not a list of at least one type",
            'Write arguments=["DOUBLE"]; what depends on nothing is a constant.',
        )
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        return  # a function in C may not say
    except TypeError as error:
        raise refused_error(
            name,
            f"it does not take {len(arguments)} arguments: {error}",
            "Declare a type for each of its parameters.",
        ) from None


#: JSON is text inside queries: DuckDB takes no Arrow text for it as what a function gives.
_TYPES = [name for name in ARROW_TYPES if name != "JSON"]


def read_type(name: str, text: Any) -> str:
    """Read the type of an argument or of the result. Raises CQL-210."""
    found = canonical_type(text) if isinstance(text, str) else None
    if found is not None and "JSON" in found:
        raise MillpondError(
            "CQL-210",
            f'function "{name}" cannot have the type {found}',
            hint="JSON is text inside queries: declare VARCHAR.",
        )
    if found is None:
        known = [*_TYPES, "DECIMAL(p, s)", *ALIASES]
        raise MillpondError(
            "CQL-210",
            f'no type "{text}" for function "{name}"',
            detail=f"The types are {', '.join([*_TYPES, 'DECIMAL(p, s)', 'STRING'])}.",
            hint=did_you_mean(str(text).upper(), known) or "Use one of these.",
        )
    return found


def check_seconds(seconds: float) -> None:
    """Raise CQL-221 for a limit of time that is none."""
    if not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
        raise MillpondError(
            "CQL-221",
            f"a call cannot be limited to {seconds!r} seconds",
            hint="Give a number > 0.",
        )


def write_code(name: str, function: Callable[..., Any]) -> bytes:
    """Write a function by cloudpickle. Raises CQL-221 if it cannot be sent to workers."""
    try:
        with _by_value(function):
            return bytes(cloudpickle.dumps(function))
    except Exception as error:
        raise refused_error(
            name,
            f"its code cannot be kept: {type(error).__name__}: {str(error).splitlines()[0]}",
            "A function that refers to open files, locks or connections cannot be sent to workers; "
            "open them inside it.",
        ) from error


@contextmanager
def _by_value(function: Callable[..., Any]) -> Iterator[None]:
    """Keep the code of the function's own module, unless it is a package that is installed."""
    module = inspect.getmodule(function)
    if module is None or module.__name__ == "__main__" or _is_installed(module):
        yield
        return
    known = module.__name__ in cloudpickle.list_registry_pickle_by_value()
    if known:
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ not in sys.modules:
        return True
    places = [sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return any(Path(file).is_relative_to(place) for place in places)


def refused_error(name: Any, why: str, hint: str) -> MillpondError:
    """Make the error of a function that cannot be defined."""
    return MillpondError(
        "CQL-221",
        f'function "{name}" cannot be defined',
        detail=f"{why[0].upper()}{why[1:]}.",
        hint=hint,
    )
