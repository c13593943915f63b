"""On a node: the actor that holds an evaluator, and the task that builds."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Callable, Iterator, Sequence, cast

import ray

from kgen.candidate import Candidate, Trust
from kgen.cluster import probe
from kgen.devices.hardware import Hardware
from kgen.devices.kinds import KINDS
from kgen.devices.machine import find_own_tools, keep_bytecode
from kgen.errors import DiskError, ToolchainError
from kgen.evaluator.candidates.build import Builder, read_extension
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import DeviceEvaluator
from kgen.evaluator.runtime.locks import DeviceLock
from kgen.evaluator.runtime.process import Server
from kgen.problems.problem import Problem
from kgen.protocol import (
    Accuracy,
    BuildReport,
    Environment,
    Evaluation,
    Health,
    Layouts,
    LibraryProduct,
    Limits,
    Timing,
)

_LOG_CHARACTERS = 1 << 16  # of a log; the rest stays on the node

#: News for the driver: a notice or a step, and its text. ``None``: there is no more.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """The arguments of an evaluator on any node. ``compile_seconds`` are left for compiling the baselines."""

    problem: Problem
    device_type: str
    accuracy: Accuracy
    baselines: tuple[str, ...]
    compile_seconds: float


@dataclass(frozen=True)
class Ready:
    """An evaluator that has started: its node, its device there, and what :class:`DeviceEvaluator` has."""

    node: str
    device: str
    at_once: int
    problem: Problem
    accuracy: Accuracy
    environment: Environment
    hardware: Hardware
    layouts: Layouts
    products: tuple[LibraryProduct, ...] = ()


@dataclass(frozen=True)
class Library:
    """A library that a build made."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Built:
    """A build on a node, with the text of its log, or the ``trouble`` that is the node's and not the source's."""

    node: str
    report: BuildReport | None = None
    log: str = ""
    trouble: str = ""


def make_evaluator(asked: Asked, notice: Tell, step: Tell) -> DeviceEvaluator:
    """An evaluator for this node's CPU, or for the GPU that Ray gave to this process."""
    return Evaluator(
        asked.problem,
        device=KINDS[asked.device_type].first,
        accuracy=asked.accuracy,
        home=probe.folder(),
        baselines=asked.baselines,
        notice=notice,
        step=step,
        limits=Limits(compile_until=time.monotonic() + asked.compile_seconds),
        trust=Trust.OWN,
    )


MakeEvaluator = Callable[[Asked, Tell, Tell], DeviceEvaluator]


class Host:
    """Holds one evaluator. Methods may be called from several threads; :meth:`news` waits in one of its own."""

    def __init__(self, make: MakeEvaluator, asked: Asked) -> None:
        _set_up()
        self._news: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._evaluator = make(
            asked, lambda text: self._news.put(("notice", text)), lambda text: self._news.put(("step", text))
        )

    def node(self) -> str:
        """The id of the node, once the actor has its place."""
        return ray.get_runtime_context().get_node_id()

    def start(self) -> Ready:
        """Start the evaluator."""
        own = self._evaluator
        with _full_disks():
            own.start()
        self._turns = threading.BoundedSemaphore(own.at_once)
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        device = f"cuda:{gpus[0]}" if gpus else own.device
        known = own.problem, own.accuracy, own.environment, own.hardware, own.layouts, tuple(own.products)
        return Ready(self.node(), device, own.at_once, *known)

    def news(self) -> list[tuple[str, str]]:
        """Wait for notices and steps; none when the evaluator is closed."""
        found = [self._news.get()]
        while not self._news.empty():
            found.append(self._news.get())
        return [item for item in found if item is not None]

    def evaluate(self, candidate: Candidate, build: BuildReport, library: Library | None) -> tuple[Evaluation, str]:
        """Judge a candidate once it is its turn. Returns the text of its log as well."""
        with self._turns, _full_disks():
            evaluation = self._evaluator.evaluate(candidate, self._placed(build, library))
        return replace(evaluation, build=build), _text(evaluation.log) if build.ok else ""

    def baselines(self) -> tuple[Timing, ...]:
        """The baselines of this device."""
        return self._evaluator.baselines()

    def health(self) -> Health:
        """The problem's health."""
        return self._evaluator.health()

    def finals(
        self, entries: Sequence[tuple[Candidate, BuildReport]], seconds: float, most: float, *libraries: Library | None
    ) -> tuple[Timing, ...]:
        """Time candidates and baselines in turns."""
        placed = [(one, self._placed(build, library)) for (one, build), library in zip(entries, libraries)]
        return self._evaluator.finals(placed, seconds=seconds, most=most)

    def close(self) -> None:
        """End every process of the evaluator."""
        self._evaluator.close()
        self._news.put(None)

    def _placed(self, build: BuildReport, library: Library | None) -> BuildReport:
        """The build with its library on this node."""
        if library is None:
            return build
        builder = self._builder
        folder = builder.directory / library.name
        if builder.binary(library.name) != build.binary:
            folder.mkdir(exist_ok=True)
            aside = folder / f"{os.getpid()}.new"
            aside.write_bytes(library.content)
            aside.replace(folder / f"{library.name}.so")
        return replace(build, directory=str(builder.directory))

    @functools.cached_property
    def _builder(self) -> Builder:
        return cast(Builder, self._evaluator.builder())


def build(source: str, device_type: str, arch: str) -> tuple[Built, Library | None]:
    """Build a source on this node, and read its library."""
    node = ray.get_runtime_context().get_node_id()
    try:
        builder = _builder(device_type, arch)
        report = builder.build(source)
        extension = read_extension(source)
        library = None
        if extension is not None and report.binary is not None:
            file = builder.directory / extension.name / f"{extension.name}.so"
            library = Library(extension.name, file.read_bytes())
    except (DiskError, ToolchainError, OSError) as error:
        return Built(node, trouble=" ".join(str(error).split())), None
    return Built(node, report, "" if report.ok else _text(report.log)), library


def prepare_builds() -> None:
    """Have this process, which Ray keeps for later builds, load torch before the first one.

    A build without a request ends as soon as it has started.
    """
    _server().spawn("build", {}, probe.folder() / "logs" / "build" / "prepared.log").kill()


@functools.cache
def _builder(device_type: str, arch: str) -> Builder:
    """The builder of this process. On the CPU it never builds during a timing."""
    lock = None if KINDS[device_type].accelerator else DeviceLock(device_type)
    return Builder(probe.folder(), device_type, arch, _server(), lock=lock)


@functools.cache
def _server() -> Server:
    """The fork server of this process's builds."""
    _set_up()
    return Server(probe.folder(), {})


def _set_up() -> None:
    find_own_tools()
    keep_bytecode(probe.folder() / "cache" / "bytecode")
    # Ray sets it to the cores that are reserved; on a machine without Ray it is not set.
    os.environ.pop("OMP_NUM_THREADS", None)
    # Ray has each of its processes collect garbage while tasks wait; imported modules are none, and take 75 ms each
    # time.
    gc.freeze()


@contextlib.contextmanager
def _full_disks() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskError(f"{error.filename or probe.folder()}: {error.strerror}") from error


def _text(log: str) -> str:
    """The end of a log."""
    return probe.text(log)[-_LOG_CHARACTERS:] if log and Path(log).is_file() else ""
