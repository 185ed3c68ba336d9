"""Methods of clients, made from calls: each has the call's parameters, types and text."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def dress(method: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """Give a method the name, the text and the parameters of the call it makes.

    What a handle knows by itself, `path`, is no parameter of the method.
    """
    functools.update_wrapper(method, call)
    signature = inspect.signature(call)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = [p for p in signature.parameters.values() if p.name != "path"]
    given = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    signed: Any = method
    signed.__signature__ = signature.replace(parameters=[own, *rest], return_annotation=given)
    return method
