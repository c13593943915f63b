"""The problems that requests may name, and those that come as a text."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any, Sequence

from kgen.errors import InputError, ProblemError
from kgen.problems.problem import Problem, parse_problem, problem_files, read_problem, sizes
from kgen.protocol import Accuracy
from kgen.serve.asked import Asked, RequestError, checked


class Known:
    """Problems by name: those that ``kgen problems`` lists, and the files of ``folders``. With ``accepts_texts``, a
    request may bring a problem's text."""

    def __init__(self, folders: Sequence[Path] = (), *, accepts_texts: bool = False, seconds: float = 2.0) -> None:
        self.files = problem_files()
        self.accepts_texts = accepts_texts
        self._seconds = seconds
        for folder in folders:
            if not folder.is_dir():
                raise InputError(f"{folder}: no such folder: --problems names a folder of problem files")
            self.files |= {file.stem: file for file in sorted(folder.rglob("*.py")) if not file.name.startswith("_")}
        self._by_text = {
            _hash(file.read_text(encoding="utf-8", errors="replace")): name for name, file in self.files.items()
        }

    def listed(self) -> list[dict[str, Any]]:
        """Each problem's name, and its constants that a request can override."""
        found = []
        for name, file in sorted(self.files.items()):
            try:
                constants = sizes(file.read_text(encoding="utf-8"))
            except (OSError, SyntaxError, ValueError):
                continue  # no request can name it either
            found.append({"problem": name, "sizes": constants})
        return found

    def ask(self, body: Any) -> tuple[Asked, dict[str, Any]]:
        """The evaluation that a request's body asks for, and its checked fields. Raises :class:`RequestError`."""
        fields = checked(body)
        problem, foreign = self._problem(fields)
        seconds = self._seconds if fields["seconds"] is None else float(fields["seconds"])
        asked = Asked(
            problem=problem,
            foreign=foreign,
            candidate=fields["candidate"],
            language=fields["language"],
            accuracy=Accuracy(fields["accuracy"]),
            baselines=tuple(dict.fromkeys(fields["baselines"])),
            seconds=seconds,
            cache=fields["cache"],
        )
        return asked, fields

    def _problem(self, fields: dict[str, Any]) -> tuple[Problem, bool]:
        """The problem, and whether its text is foreign."""
        options = (fields["overrides"], fields["mode"] or None, fields["dtype"] or None)
        text, name = fields["problem_text"], fields["problem"]
        if text is not None:
            name = self._by_text.get(_hash(text))
        try:
            if name is None:
                if not self.accepts_texts:
                    raise RequestError(403, "this service takes names of known problems alone: see GET /problems")
                if fields["overrides"]:  # their arithmetic would be done in this process
                    raise RequestError(422, "overrides are for known problems: write the values into problem_text")
                return parse_problem(f"text_{_hash(text)[:12]}", text, *options), True
            if name not in self.files:
                raise RequestError(422, f"no problem {ascii(name[:60])}: GET /problems lists the known ones")
            return _read(
                str(self.files[name]), _written(self.files[name]), tuple((options[0] or {}).items()), *options[1:]
            ), False
        except (ProblemError, RecursionError, MemoryError) as error:
            raise RequestError(422, str(error) or "the problem's text is nested too deeply") from error


def _written(file: Path) -> tuple[int, int]:
    """When a file was written, and its bytes; zeros where it is gone."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=256)
def _read(
    path: str, written: tuple[int, int], overrides: tuple[tuple[str, str], ...], mode: str | None, dtype: str | None
) -> Problem:
    """The problem of a file in the version ``written``. It is cached: a trainer's step names each problem many
    times."""
    return read_problem(path, dict(overrides), mode, dtype)


def _hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()
