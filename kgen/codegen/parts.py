"""Parts of a file with many kernels, which a build compiles beside each other: one after the other, they take a minute.

    #if !defined(PART) || PART == 2
    ...                                     kernels that one compiler takes
    #endif

Part 0 has the functions that launch kernels. It declares the launchers of the other parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

FEWEST = 8  #: functions of a file that has parts
_OF_PART, _MOST = 3, 16  #: functions of a part on average, and parts of kernels; each part reads all headers again


def in_parts(texts: Sequence[str]) -> list[str]:
    """The texts in their order, as so many parts of about equal length; a single part where there are few of them."""
    count = min(_MOST, len(texts) // _OF_PART) if len(texts) >= FEWEST else 1
    total, before, numbers = sum(map(len, texts)), 0, []
    for text in texts:
        numbers.append((before + len(text) // 2) * count // max(1, total))
        before += len(text)
    return ["\n\n".join(text for text, _ in of) for _, of in groupby(zip(texts, numbers), key=lambda one: one[1])]
