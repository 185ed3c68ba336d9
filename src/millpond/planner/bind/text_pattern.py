"""A template's texts as a regular expression, which gives their constants in microseconds.

A hundred thousand texts that are registered together are recognized one by one, and finding each
one's outline costs more than anything else that is done with it.

INV-PATTERN-1: a text that matches the pattern made of another text has that text's outline (as
`templates` finds it), the constants the pattern gives are its constants, and its characters are
whole. A pattern is made only where that can be shown: no quote stands between two constants, and
constants do not touch. So each constant begins behind the same character as before and ends before
the same one, and what stands between constants is read as before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

#: Texts longer than this, or with more constants, have no pattern.
_LONGEST, _MOST_CONSTANTS = 10_000, 50
#: By the kind of a constant, the constants of this kind. Together they are so short that no text
#: of a pattern is too long to be bound.
_OF_KIND = {
    "'i": r"([0-9]{1,9})",
    "'l": r"([0-9]{10,18})",
    "'d": r"([0-9]{1,8}\.[0-9]{1,9})",
    "'": r"'([^'\ud800-\udfff]{0,1000})'",
}


@dataclass(frozen=True)
class TextPattern:
    """The texts that one template binds, as far as a pattern can say it.

    Attributes:
        pattern: The texts; a group is a lifted constant.
        forms: By the number of a group, the form that its string must have.
    """

    pattern: re.Pattern[str]
    forms: tuple[tuple[int, re.Pattern[str]], ...]

    def find_constants(self, text: str) -> tuple[str, ...] | None:
        """Find the lifted constants of a text; None if the text is not one of these."""
        match = self.pattern.fullmatch(text)
        if match is None:
            return None
        constants = match.groups()
        for group, form in self.forms:
            if not form.fullmatch(constants[group]):
                return None
        return constants


def make_pattern(
    pieces: Sequence[str], kinds: Sequence[str], lifted: Collection[int]
) -> re.Pattern[str] | None:
    """Make the pattern of the texts that differ from a text in its lifted constants only.

    Args:
        pieces: The text; every second piece is a constant, as written.
        kinds: The constants' kinds: `'i`, `'l` or `'d` for a number, `'` for a string.
        lifted: Numbers of constants.

    Returns:
        A pattern with a group for each lifted constant, in their order; None if there is none.

    >>> pattern = make_pattern(["SELECT a FROM s WHERE b = ", "17", " AND c < ", "2", ""],
    ...     ["'i", "'i"], [0])
    >>> pattern.fullmatch("SELECT a FROM s WHERE b = 5 AND c < 2").groups()
    ('5',)
    """
    between = pieces[::2]
    if len(kinds) > _MOST_CONSTANTS or sum(map(len, pieces)) > _LONGEST:
        return None
    if any("'" in piece for piece in between) or not all(between[1:-1]):
        return None
    parts = [re.escape(between[0])]
    for number, kind in enumerate(kinds):
        constant = re.escape(pieces[2 * number + 1])
        if number in lifted:
            if kind not in _OF_KIND:
                return None
            constant = _OF_KIND[kind]
        parts += (constant, re.escape(between[number + 1]))
    return re.compile("".join(parts))
