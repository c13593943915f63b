"""The places of kgen's files: one folder, ``./runs`` or ``KGEN_HOME``, holds the database and all other files."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Iterable, TextIO

from kgen.errors import DiskError

STDOUT = Path("-")  #: as the name of an output

_MODE = 0o644  # of new files


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
    """The text of a log file that the database names; ``None`` for a file that is not here, below kgen's own folder."""
    file = Path(log).resolve()
    is_own = bool(log) and file.is_relative_to((home() / "logs").resolve())
    return file.read_text(encoding="utf-8", errors="replace") if is_own and file.is_file() else None


def bug_report(sweep: str, text: str) -> Path:
    """The file of a sweep's bug reports, with this one behind the others."""
    file = home() / "logs" / "bugs" / f"{sweep}.log"
    write_whole(file, [read_log(str(file)) or "", text, "\n"])
    return file


def check_writable(file: Path) -> None:
    """Check before long work that ``file`` can be written. Raises :class:`DiskError` if it cannot."""
    if _stream(file):
        return
    if file.is_dir():
        raise DiskError(f"{file} is a folder: name a file")
    if file.exists() and not file.is_file():
        if not os.access(file, os.W_OK):
            raise DiskError(f"{file}: cannot be written: permission denied")
    elif not os.access(folder := _target(file).parent, os.W_OK):
        raise DiskError(f"{folder}: no such folder, or it cannot be written")


def is_stdout(file: Path) -> bool:
    """Whether ``file`` names standard output: ``-``, or the path of the same file."""
    return _stream(file) is sys.stdout


def is_ordinary(file: Path) -> bool:
    """Whether ``file`` is, or would be, a file of a folder: no device, no pipe, no output of this process."""
    return not _stream(file) and (file.is_file() or not file.exists())


def write_whole(file: Path, text: str | Iterable[str]) -> None:
    """Write a text, or its parts one by one. ``-`` is standard output. Makes the folder of the file.

    The text goes to a temporary file first, which is then renamed: the file is never half written. A file that exists
    keeps its mode and owner, and a symbolic link leads to the new text. Devices and pipes are written to as they are.
    Raises :class:`DiskError`, and ``BrokenPipeError`` where nobody reads standard output any more.
    """
    parts = [text] if isinstance(text, str) else text
    if stream := _stream(file):
        stream.writelines(parts)
        stream.flush()
        return
    try:
        if is_ordinary(file):
            _replace(_target(file), parts)
        else:
            with open(file, "w", encoding="utf-8") as through:
                through.writelines(parts)
    except OSError as error:
        raise DiskError(f"{file}: cannot be written: {error.strerror or error}") from error


def _stream(file: Path) -> TextIO | None:
    """The output of this process that ``file`` names. A shell may have redirected that output to an ordinary file."""
    if file == STDOUT:
        return sys.stdout
    with contextlib.suppress(OSError):
        found = os.stat(file)
        for number, stream in ((1, sys.stdout), (2, sys.stderr)):
            if os.path.samestat(found, os.fstat(number)):
                return stream
    return None


def _target(file: Path) -> Path:
    """The path of the file itself, behind all symbolic links."""
    return Path(os.path.realpath(file))


def _replace(file: Path, parts: Iterable[str]) -> None:
    """Replace an ordinary file by a new one with the same mode and owner."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as aside:
        try:
            aside.writelines(parts)
            aside.flush()
            _rename(aside.name, file)
        except BaseException:
            os.unlink(aside.name)
            raise


def _rename(aside: str, file: Path) -> None:
    """Rename ``aside`` to ``file``, whose mode and owner it takes."""
    before = os.stat(file) if file.exists() else None
    try:
        if before:
            os.chown(aside, before.st_uid, before.st_gid)
        os.chmod(aside, stat.S_IMODE(before.st_mode) if before else _MODE)
        os.replace(aside, file)
    except PermissionError:
        if before is None:
            raise
        shutil.copyfile(aside, file)  # only its owner, or root, may make a file of that owner
        os.unlink(aside)


def remove_files(candidates: Iterable[str], logs: Iterable[str]) -> None:
    """Remove sources of candidates and logs; files outside the home folder stay."""
    own = home().resolve()
    for file in (*map(candidate_file, candidates), *map(Path, logs)):
        if file.resolve().is_relative_to(own):
            file.unlink(missing_ok=True)
