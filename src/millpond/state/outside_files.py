"""Files outside the store: which may be read as sources, and which directory may become a store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError

#: The kernel's directories: their entries look like files and are none.
_SPECIAL = tuple(Path(name) for name in ("/proc", "/sys", "/dev"))


def check_within(definition: StreamDef | RelationDef, paths: Iterable[str]) -> None:
    """Check that files about to be read lie in the directory their source is confined to.

    Raises:
        MillpondError: POND-414, a file lies elsewhere, perhaps behind a symbolic link.
    """
    source = definition.source
    if source is None or source.within is None:
        return
    root = Path(source.within)
    for path in paths:
        local = Path("/" + path.removeprefix("file:").lstrip("/")) if ":" in path else Path(path)
        if not local.resolve().is_relative_to(root):
            leads = f'"{link}" leads' if (link := _link_below(root, local)) else "Its path leads"
            raise MillpondError(
                "POND-414",
                f'a file of "{definition.name}" is not below the directory it is confined to',
                detail=f'{leads} out of "{root}".',
                hint="Take it away; the stream goes on where it was.",
            )


def _link_below(root: Path, path: Path) -> str | None:
    """The name of what leads out of a directory: no name that lies outside of it is told."""
    steps = path.relative_to(root).parts if path.is_relative_to(root) else ()
    below = root
    for step in steps:
        below /= step
        if step == ".." or not below.resolve().is_relative_to(root):
            return None if step == ".." else step
    return None


def check_ordinary(path: Path, what: str) -> None:
    """Refuse a path that is no ordinary file or directory: a device, a pipe, a file of the kernel.

    Raises:
        MillpondError: DATA-502, the path is no ordinary file or directory.
    """
    real = path.resolve()
    special = any(real.is_relative_to(root) for root in _SPECIAL)
    if special or (real.exists() and not real.is_file() and not real.is_dir()):
        raise MillpondError(
            "DATA-502",
            f'{what} "{path}" is not an ordinary file or directory',
            detail="Devices, pipes and the kernel's own files may never end.",
            hint="Name a file or directory on a disk.",
        )
