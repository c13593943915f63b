"""The places of kgen's files: one folder, ``./runs`` or ``KGEN_HOME``, holds the database and all other files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Iterable

from kgen.errors import DiskError


def home() -> Path:
    """The folder that kgen writes to: ``KGEN_HOME``, or ``./runs``."""
    return Path(os.environ.get("KGEN_HOME") or "runs")


def db_url(url: str | None = None) -> str:
    """The database's URL: ``url``, else ``KGEN_DB``, else SQLite in the home folder. A bare path means SQLite."""
    text = url or os.environ.get("KGEN_DB") or str(home() / "kgen.db")
    return text if "://" in text else f"sqlite:///{text}"


def candidates() -> Path:
    """The folder of all rendered sources."""
    return home() / "candidates"


def builds() -> Path:
    """The folder of compiled libraries."""
    return home() / "builds"


def bytecode() -> Path:
    """The folder of Python's bytecode."""
    return home() / "cache" / "bytecode"


def candidate_file(candidate: str) -> Path:
    """The file of the candidate with this id, in one of 256 folders, so that none grows large."""
    return candidates() / candidate[:2] / f"{candidate}.py"


def write_candidate(candidate: str, source: str) -> Path:
    """The candidate's file; it is written if it does not exist."""
    file = candidate_file(candidate)
    if not file.exists():
        write_whole(file, source)
    return file


def read_log(log: str) -> str | None:
    """The text of a log file that the database names; ``None`` for a file that is not on this machine."""
    file = Path(log)
    return file.read_text(encoding="utf-8", errors="replace") if log and file.is_file() else None


def bug_report(sweep: str, text: str) -> Path:
    """The file of a sweep's bug reports, with this one behind the others."""
    file = home() / "logs" / "bugs" / f"{sweep}.log"
    write_whole(file, [read_log(str(file)) or "", text, "\n"])
    return file


def check_writable(file: Path) -> None:
    """Check before long work that ``file`` can be written. Raises :class:`DiskError` if it cannot."""
    if file.is_dir():
        raise DiskError(f"{file} is a folder: name a file")
    if not os.access(file.parent, os.W_OK):
        raise DiskError(f"{file.parent}: no such folder, or it cannot be written")


def write_whole(file: Path, text: str | Iterable[str]) -> None:
    """Write a text, or its parts one by one. Makes the folder of the file.

    The text goes to a temporary file first, which is then renamed: the file is never half written. Raises
    :class:`DiskError`.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as aside:
            try:
                aside.writelines([text] if isinstance(text, str) else text)
            except BaseException:
                os.unlink(aside.name)
                raise
        os.chmod(aside.name, 0o644)
        os.replace(aside.name, file)
    except OSError as error:
        raise DiskError(f"{file}: cannot be written: {error.strerror or error}") from error


def remove_files(candidates: Iterable[str], logs: Iterable[str]) -> None:
    """Remove sources of candidates and logs; files outside the home folder stay."""
    own = home().resolve()
    for file in (*map(candidate_file, candidates), *map(Path, logs)):
        if file.resolve().is_relative_to(own):
            file.unlink(missing_ok=True)
