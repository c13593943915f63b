"""Several problems on a command line: files, known names and folders, read in one order, each file once.

Nothing is executed: reading a problem parses its text. An unreadable file stays in the set with the reason: one bad
file does not end a suite.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from kgen.errors import ProblemError
from kgen.problems.problem import SUFFIXES, Problem, find_problem, problem_files, read_problem


@dataclass(frozen=True)
class Member:
    """One file of a set. ``problem`` is ``None`` where the file could not be read as one; ``reason`` then says why."""

    path: Path
    problem: Problem | None
    reason: str = ""

    @property
    def title(self) -> str:
        """The problem's name with its overrides, or the file's."""
        return self.problem.title if self.problem else self.path.stem

    @property
    def source_hash(self) -> str:
        """SHA-256 of the problem's source or, where it could not be read, of the file's bytes, in hexadecimal."""
        return self.problem.source_hash if self.problem else hashlib.sha256(_bytes(self.path)).hexdigest()


def is_set(references: Sequence[str]) -> bool:
    """Whether a command line names a set of problems, and not one problem: several of them, or a folder."""
    return len(references) != 1 or _is_folder(references[0])


def read_set(
    references: Sequence[str],
    overrides: Mapping[str, str] | None = None,
    mode: str | None = None,
    dtype: str | None = None,
) -> tuple[Member, ...]:
    """The problems that files, known names and folders name, in the order given; those of a folder by their numbers.

    A folder's problems are its ``.py`` and ``.pt2`` files that do not begin with ``_``. ``overrides``, ``mode`` and
    ``dtype`` hold for each. Raises :class:`ProblemError` for a folder without problems, a file that appears twice, an
    unknown name, and a set without any readable file.
    """
    paths = [path for reference in references for path in _paths(reference)]
    seen: dict[Path, Path] = {}
    for path in paths:
        twice = seen.setdefault(path.resolve(), path)
        if twice is not path:
            names = str(path) if str(path) == str(twice) else f"{twice} and {path}"
            raise ProblemError(f"{names}: the same file appears twice; name it once")
    members = tuple(_member(path, overrides, mode, dtype) for path in paths)
    if not any(member.problem for member in members):
        more = f"; the other {len(members) - 1} cannot be read either" if len(members) > 1 else ""
        raise ProblemError(f"{members[0].reason}{more}")
    return members


def _is_folder(reference: str) -> bool:
    return Path(reference).is_dir() and reference not in problem_files()


def _paths(reference: str) -> list[Path]:
    if not _is_folder(reference):
        return [find_problem(reference)]
    folder = Path(reference)
    every = (path for suffix in SUFFIXES for path in folder.glob(f"*{suffix}"))
    found = sorted((path for path in every if not path.name.startswith("_")), key=_in_order)
    if not found:
        below = sorted({str(path.parent) for path in folder.glob("*/*.py")})
        hint = f"name a folder in it: {', '.join(below[:5])}" if below else "name a folder with problem files"
        raise ProblemError(f"{reference}: the folder has no problem (no .py or .pt2 file); {hint}")
    return found


def _in_order(path: Path) -> list[tuple[int, str]]:
    """A key by which ``2_b.py`` comes before ``10_a.py``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.stem) if part]


def _member(path: Path, overrides: Mapping[str, str] | None, mode: str | None, dtype: str | None) -> Member:
    try:
        return Member(path, read_problem(str(path), overrides, mode, dtype))
    except ProblemError as error:
        return Member(path, None, str(error))


def _bytes(path: Path) -> bytes:
    """The content of the file, or its path if the file cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return str(path).encode()
