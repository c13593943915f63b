"""Where kgen keeps things: one folder, ``./runs`` or ``KGEN_HOME``, with the database and all files beside it."""

from __future__ import annotations

import os
from pathlib import Path

from kgen.errors import DiskError


def home() -> Path:
    """The folder that kgen writes to: ``KGEN_HOME``, or ``./runs``."""
    return Path(os.environ.get("KGEN_HOME") or "runs")


def db_url(url: str | None = None) -> str:
    """The database's URL: ``url``, else ``KGEN_DB``, else SQLite in the home folder. A bare path is SQLite, too."""
    text = url or os.environ.get("KGEN_DB") or str(home() / "kgen.db")
    return text if "://" in text else f"sqlite:///{text}"


def candidates() -> Path:
    """The folder of all rendered sources."""
    return home() / "candidates"


def builds() -> Path:
    """The folder of compiled libraries."""
    return home() / "builds"


def candidate_file(candidate: str) -> Path:
    """Where the source of the candidate with this id lies: 256 folders, so that none grows large."""
    return candidates() / candidate[:2] / f"{candidate}.py"


def write_candidate(candidate: str, source: str) -> Path:
    """The candidate's file, written if it is not there yet: aside first, so that a kill leaves no half of a file."""
    file = candidate_file(candidate)
    if file.exists():
        return file
    aside = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(source, encoding="utf-8")
        aside.replace(file)
    except OSError as error:
        raise DiskError(f"{file}: cannot be written: {error.strerror or error}") from error
    return file
