"""The process of the service: listens, answers, and ends without losing what it accepted."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Callable, Sequence

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kgen import paths
from kgen.devices.kinds import kind_of
from kgen.devices.machine import resolve_device
from kgen.errors import DiskError, EvaluatorError, InputError
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.runtime.process import Server, servers_kept
from kgen.serve import access
from kgen.serve.app import application
from kgen.serve.asked import Asked
from kgen.serve.bench import Bench, fork_servers, make_evaluator
from kgen.serve.judge import Judge
from kgen.serve.known import Known
from kgen.serve.metrics import Metrics
from kgen.serve.service import Service
from kgen.store import Database

HEAD_SECONDS = 10.0  #: s; in which the head of a request has to arrive
_IDLE_SECONDS = 30  #: s; that a connection may wait for its next request
_MOST_CONNECTIONS = 1024
_HEAD_BYTES = 16 << 10  #: bytes of a request's head
#: Seconds that a thread holds Python at most while others wait. Threads that judge then keep no client waiting.
_SWITCH_SECONDS = 0.0002
_GRACE_SECONDS = 2  #: s; for open connections when the service ends
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
#: Variables that no candidate may read: its process has the service's environment.
_SECRETS = ("KGEN_TOKEN", "KGEN_DB")


@dataclass(frozen=True)
class Options:
    """The options of ``kgen serve``. ``seconds`` is the length of a timing beside the baselines; ``queue`` bounds the
    evaluations that are accepted and not answered."""

    host: str
    port: int
    devices: tuple[str, ...] = ()
    tokens: Path | None = None
    problems: tuple[Path, ...] = ()
    accepts_texts: bool = False
    queue: int = 1024
    seconds: float = 2.0
    evaluators: int | None = None
    db: str | None = None


def serve(options: Options, begun: Callable[[str], None], notice: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, and finish what runs then; a second signal ends at once. ``begun`` receives the
    address.

    Raises :class:`InputError` for an address that cannot be used, or that others reach while there is no token.
    """
    tokens = access.read_tokens(options.tokens, os.environ.get("KGEN_TOKEN"))
    if not tokens and not access.is_loopback(options.host):
        raise InputError(
            f"--host {options.host}: others reach this address: give their tokens with --tokens FILE, or KGEN_TOKEN"
        )
    known = Known(options.problems, accepts_texts=options.accepts_texts, seconds=options.seconds)
    devices = tuple(resolve_device(device) for device in options.devices or (None,))
    _keep_private()
    with (
        _listen(options.host, options.port) as listening,
        Database.open(options.db, notice=notice) as database,
        servers_kept(),  # the next problem's evaluator needs not load torch again
    ):
        for name in _SECRETS:
            os.environ.pop(name, None)
        judge = _judge(options, devices, database, notice)
        service = Service(database, judge, known, tokens, devices)
        sys.setswitchinterval(_SWITCH_SECONDS)
        ahead = _load_ahead(devices, options)
        adopted = judge.start()
        if adopted:
            notice(f"{adopted} accepted evaluations go on")
        try:
            _run(service, listening, begun)
        finally:
            judge.close()
            for server in ahead:
                server.close()


def _load_ahead(devices: Sequence[str], options: Options) -> list[Server]:
    """Have fork servers of the first evaluators load torch, where the cores have nothing else to do."""
    most = _evaluators(options, devices) if kind_of(devices[0]).accelerator else 0
    servers = [server for device in devices for server in fork_servers(device, most)]

    def load(server: Server) -> None:
        with suppress(EvaluatorError):  # the service has ended, or the first evaluation says why
            server.keep_loaded()

    for server in servers:
        threading.Thread(target=load, args=[server], name="kgen-ahead", daemon=True).start()
    return servers


def _evaluators(options: Options, devices: Sequence[str]) -> int:
    """How many evaluators each device keeps."""
    return options.evaluators or kind_of(devices[0]).evaluators


def _judge(options: Options, devices: Sequence[str], database: Database, notice: Callable[[str], None]) -> Judge:
    kind, most = kind_of(devices[0]), _evaluators(options, devices)
    metrics = Metrics()

    def make(asked: Asked, device: str) -> Evaluator:
        metrics.add("kgen_evaluators_total")
        return make_evaluator(asked, device, notice)

    benches = [Bench(device, make, most) for device in devices]
    cores = len(os.sched_getaffinity(0)) // len(devices)
    lanes = max(kind.lanes, min(kind.lanes * most, 3 * cores // 4)) if kind.accelerator else kind.lanes
    return Judge(database, benches, lanes=lanes, limit=options.queue, metrics=metrics, notice=notice)


def _keep_private() -> None:
    """Close kgen's folder to other users: it holds the texts of all clients."""
    os.umask(0o077)
    home = paths.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
    except OSError as error:
        raise DiskError(f"{home}: cannot be made private: {error.strerror or error}") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(f"{host}:{port} cannot be used ({reason}): choose others with --host and --port") from error


class _Protocol(H11Protocol):
    """HTTP whose requests have to begin and to end in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._end_late)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_LATE)
            self.transport.close()


class _Server(uvicorn.Server):
    """A server whose first signal lets what runs finish, while it answers on; the second one ends it."""

    def __init__(self, config: uvicorn.Config, judge: Judge) -> None:
        super().__init__(config)
        self._judge = judge

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._judge.is_draining or sig not in (signal.SIGTERM, signal.SIGINT):
            self.should_exit = True
            return
        # Not here: the handler may have interrupted a thread's owner of the same lock.
        threading.Thread(target=self._finish, name="kgen-finish", daemon=True).start()

    def _finish(self) -> None:
        self._judge.drain()
        self._judge.finish()
        self.should_exit = True


def _run(service: Service, listening: socket.socket, begun: Callable[[str], None]) -> None:
    config = uvicorn.Config(
        application(service),
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    server = _Server(config, service.judge)
    host, port = listening.getsockname()[:2]
    asyncio.run(service.rehearse())
    gc.collect()
    gc.freeze()  # a search through all that is loaded stops every thread for a tenth of a second
    begun(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    sys.stdout.flush()
    asyncio.run(server.serve([listening]))
