"""One fork server for many evaluators, one after the other: each would start its own and have it load torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.runtime.process import Child, Server

#: What a capture loads, most of it when it first exports: a process that is forked with them has its graphs in a tenth of the time.
CAPTURING = ("kgen.tuning.capturing", "torch._dynamo", "torch.export._trace")


class Lender:
    """Lends the first evaluator's fork server to all; it is ended by :meth:`close` alone. It loads the modules ``first``."""

    def __init__(self, first: Sequence[str] = ()) -> None:
        self._first = first
        self._server: Server | None = None

    def lend(self, evaluator: Evaluator) -> Evaluator:
        """``evaluator``, which has not started, with the server that all share."""
        if self._server is None:
            self._server = evaluator.server
            self._server._modules[0] = ",".join(self._first)
        evaluator.server = evaluator.compilers = Lent(self._server)
        return evaluator

    def close(self) -> None:
        """End the server; whoever is lent one next starts it anew."""
        if self._server is not None:
            self._server.close()
        self._server = None


@contextmanager
def one_server(lender: Lender) -> Iterator[None]:
    """Sweeps of this process, and evaluations of files, share the lender's fork server."""
    from kgen.tuning import eval_file, opening

    with pytest.MonkeyPatch.context() as patch:
        for module in (eval_file, opening):
            patch.setattr(module, "Evaluator", lambda *given, **more: lender.lend(Evaluator(*given, **more)))
        yield


class Lent(Server):
    """A server that its evaluator neither starts nor ends."""

    def __init__(self, server: Server) -> None:
        self._lent, self.home = server, server.home

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def wait(self) -> None:
        self._lent.wait()

    def spawn(self, kind: str, options: Any, log: Path, environment: Any = None) -> Child:
        return self._lent.spawn(kind, options, log, environment)


@contextmanager
def one_server_of_plans(server: Server) -> Iterator[None]:
    """Commands of this process that capture a problem share one fork server."""
    from kgen.evaluator.runtime import process

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "Server", lambda *_, **__: Lent(server))
        yield
