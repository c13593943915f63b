"""Browsing: the database on loopback through Datasette, read-only, with prepared queries.

    SQLite       the file itself, opened with ``mode=ro``: shows commits of a running sweep, and blocks nothing
    PostgreSQL   a snapshot of one moment, as a temporary SQLite file

``queries.yaml`` has the queries and the descriptions of the tables, in the format of Datasette's metadata.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from kgen.errors import ExtraError, InputError
from kgen.store import Database

if TYPE_CHECKING:
    from datasette.app import Datasette

HOST = "127.0.0.1"

QUERIES = Path(__file__).with_name("queries.yaml")

#: Queries over a hundred thousand evaluations take longer than Datasette allows by default.
_SETTINGS = {"sql_time_limit_ms": 10_000, "facet_time_limit_ms": 1000, "default_page_size": 50}

_GRACE_SECONDS = 2  #: seconds; for open connections when the server ends


def serve(database: Database, port: int, begun: Callable[[str], None]) -> None:
    """Serve ``database`` until Ctrl-C. ``begun`` receives the address as soon as the server answers.

    A ``port`` of 0 takes any free port. Raises :class:`ExtraError` without Datasette, and :class:`InputError` for a
    port in use.
    """
    _need_datasette()
    with tempfile.TemporaryDirectory(prefix="kgen-browse-") as folder, _listen(port) as listening:
        file = Path(folder) / "kgen.db"
        _offer(database, file)
        database.close()  # its connections may write; Datasette opens the file read-only
        _run(application(file), listening, begun)


def application(file: Path) -> Datasette:
    """Datasette over one SQLite file, opened with ``mode=ro`` and not as immutable, so that commits appear."""
    from datasette.app import Datasette
    from datasette.utils import parse_metadata

    metadata: Any = parse_metadata(QUERIES.read_text(encoding="utf-8"))
    return Datasette(files=[str(file)], metadata=metadata, settings=_SETTINGS)


def _offer(database: Database, file: Path) -> None:
    """Make ``file`` lead to the database: a link to the SQLite file, or a snapshot of a PostgreSQL database."""
    from kgen.store.snapshot import snapshot

    if database.connections.is_sqlite:
        file.symlink_to(Path(database.name).resolve())
    else:
        snapshot(database, file)


def _need_datasette() -> None:
    try:
        import datasette.app  # noqa: F401
    except ImportError as error:
        raise ExtraError("kgen browse needs Datasette: pip install 'kgen[browse]'") from error


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise InputError(
            f"port {port} cannot be used ({os.strerror(error.errno)}): choose another with --port"
        ) from error


def _run(datasette: Datasette, listening: socket.socket, begun: Callable[[str], None]) -> None:
    import rich
    import uvicorn

    # For each mistyped query, Datasette prints a traceback to this console. The page shows the error anyway.
    rich.reconfigure(quiet=True)
    options = {"log_level": "warning", "lifespan": "on", "timeout_graceful_shutdown": _GRACE_SECONDS}
    server = uvicorn.Server(uvicorn.Config(datasette.app(), **options))
    begun(f"http://{HOST}:{listening.getsockname()[1]}/kgen")  # it listens already, so that early requests wait
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # the normal end: uvicorn has closed everything, and passes the signal on
