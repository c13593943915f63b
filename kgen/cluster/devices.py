"""The driver's side of a cluster: its devices and its builder, as a sweep without one has them."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import threading
import time
from collections.abc import Mapping
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Sequence

import ray
from ray.exceptions import RayError, RayTaskError

from kgen import paths
from kgen.candidate import Candidate
from kgen.cluster import host
from kgen.cluster.fleet import Fleet, Node
from kgen.cluster.host import Asked, MakeEvaluator, Ready
from kgen.devices.kinds import KINDS
from kgen.errors import DeviceError, DiskError, EvaluatorError
from kgen.evaluator.pool import DeviceLost, DevicePool
from kgen.evaluator.runtime.process import Server
from kgen.protocol import BuildReport, Evaluation, Health, Timing
from kgen.tuning import events
from kgen.tuning.sweep import OpenDevices, SweepRequest
from kgen.tuning.time_budget import COMPILE_PART

_LOOK_SECONDS = 5.0  # between looks for nodes that joined, while a device waits for its place
_PATIENCE_SECONDS = 120.0  # without a fitting node; the sweep ends then, and the same command continues it
_STARTS = 3  # of an evaluator whose process dies before it is ready
_AHEAD = 1  # candidates that wait on the node of a device, so that it never waits for the driver
_CALLS = 16  # at once on an actor: candidates that a GPU judges side by side, news, health and close
_GPU_CORES = 4  # reserved beside a GPU: its evaluator's processes keep about as many busy
_MEMORY = 8 << 30  # bytes reserved for each device, at most half of its part of the node
_CLOSE_SECONDS = 5.0
_REPORT_SECONDS = 1.0
_MOST_JOBS = 256  # builds at once


class ClusterDevice:
    """One device of the fleet; see :class:`kgen.evaluator.pool.DeviceEvaluator`. Ray chooses its node at each start."""

    def __init__(
        self, number: int, fleet: Fleet, asked: Callable[[], Asked], tell: Mapping[str, Callable[[str], None]],
        make: MakeEvaluator = host.make_evaluator, resources: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.device = f"device {number} of the cluster"
        self.node = ""
        self._fleet = fleet
        self._asked = asked
        self._tell = tell
        self._make = make
        self._resources = resources
        self._actor: Any = None
        self._ready: Ready | None = None
        self._baselines: tuple[Timing, ...] = ()
        self._builders: list[ClusterBuilder] = []
        self._closed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        """``problem``, ``accuracy``, ``environment``, ``hardware``, ``products`` and ``layouts``, as the latest start
        found them."""
        ready = self.__dict__.get("_ready")
        if ready is None or name not in ("problem", "accuracy", "environment", "hardware", "products", "layouts"):
            raise AttributeError(name)
        return getattr(ready, name)

    @property
    def at_once(self) -> int:
        """How many candidates the device has: those that every equal one judges side by side, and :data:`_AHEAD`."""
        return self._fleet.at_once + _AHEAD

    def start(self) -> None:
        """Start an evaluator on a node with a free device, and wait for one. Raises :class:`DeviceError` where none is
        left, and what the evaluator raises."""
        for _ in range(_STARTS):
            self._kill()
            try:
                self._place()
                prepare_builds(self._fleet)
                self._ready = ready = self._call("start")
            except DeviceLost as error:
                lost = error
            except DiskError as error:
                self._fleet.leave_out(self.node, str(error))
                lost = error
            else:
                return self._started(ready)
        raise EvaluatorError(f"its evaluator died {_STARTS} times before it was ready: {lost}")

    def _started(self, ready: Ready) -> None:
        name = next((node.name for node in self._fleet.nodes if node.id == ready.node), ready.node)
        self.node, self.device, self._baselines = ready.node, f"{name}/{ready.device}", ()
        self._fleet.at_once = ready.at_once
        threading.Thread(target=self._listen, args=(self._actor,), name="kgen-news", daemon=True).start()

    def _place(self) -> None:
        """Make an actor, and wait until Ray has placed it on one of the nodes that fit."""
        nodes: list[Node] = []
        since = time.monotonic()
        while not self._closed.is_set():
            found = self._fleet.fitting()
            if found and found != nodes:
                self._kill()
                nodes = found
                options = self._resources if self._resources is not None else reserved(self._fleet.device_type, nodes)
                actor = ray.remote(host.Host).options(max_concurrency=_CALLS, label_selector=selector(nodes), **options)
                self._actor = actor.remote(self._make, self._asked())
                placed = self._actor.node.remote()
            if found and ray.wait([placed], timeout=_LOOK_SECONDS)[0]:
                self.node = self._get(placed)
                return
            if found:
                self._fleet.tell_of_waiting()
            if not found and (self._fleet.is_hopeless() or time.monotonic() - since > _PATIENCE_SECONDS):
                raise DeviceError(f"no node of the cluster serves any more: {self._fleet.why_none()}")
            if not found:
                self._closed.wait(1.0)
        raise EvaluatorError("the cluster is closed")

    def builder(self) -> "ClusterBuilder":
        """A builder on any node of the cluster with the compilers of this device."""
        self._builders.append(ClusterBuilder(self._fleet, self.environment.arch))
        return self._builders[-1]

    def health(self) -> Health:
        """The problem's health. Raises :class:`DeviceLost` as all of these methods."""
        return self._call("health")

    def baselines(self) -> tuple[Timing, ...]:
        """The baselines of this device, from the latest start on."""
        self._baselines = self._baselines or self._call("baselines")
        return self._baselines

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
        """Judge a candidate there; its log is copied here."""
        try:
            evaluation, log = self._call("evaluate", candidate, build, self._fleet.libraries.get(build))
        except DiskError as error:
            self._fleet.leave_out(self.node, str(error))
            raise DeviceLost(f"{self.device}: {error}") from error
        return replace(evaluation, log=kept_log("candidates", evaluation.log, log)) if log else evaluation

    def finals(
        self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float, most: float = math.inf
    ) -> tuple[Timing, ...]:
        """Time candidates and baselines in turns."""
        libraries = [self._fleet.libraries.get(build) for _, build in candidates]
        return self._call("finals", list(candidates), seconds, most, *libraries)

    def closing(self) -> Any:
        """Have the evaluator end its processes, without waiting; ``None`` where it has not started."""
        self._closed.set()
        return self._actor.close.remote() if self._actor is not None and self._ready is not None else None

    def close(self) -> None:
        """End the actor. Threads that wait for it get :class:`DeviceLost`; those that wait for builds, an error too."""
        self._closed.set()
        for builder in self._builders:
            builder.close()
        self._kill()

    def _kill(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None and ray.is_initialized():
            with contextlib.suppress(RayError):
                ray.kill(actor)

    def _call(self, method: str, *arguments: Any) -> Any:
        actor = self._actor
        if actor is None:
            raise DeviceLost(f"{self.device} is gone")
        return self._get(getattr(actor, method).remote(*arguments))

    def _get(self, ref: Any) -> Any:
        """The answer of the actor. Raises what its method raised, and :class:`DeviceLost` where it is gone."""
        try:
            return ray.get(ref)
        except RayTaskError as error:
            if isinstance(error.cause, Exception) and not isinstance(error.cause, RayError):
                raise error.cause from None
            raise DeviceLost(f"{self.device}: {error.cause}") from error
        except RayError as error:
            raise DeviceLost(f"{self.device} is gone: {str(error).strip().splitlines()[-1][:120]}") from error

    def _listen(self, actor: Any) -> None:
        """Tell the actor's news until it ends."""
        with contextlib.suppress(Exception):  # Ray may be shut down meanwhile
            while news := ray.get(actor.news.remote()):
                for kind, text in news:
                    self._tell[kind](text)


def prepare_builds(fleet: Fleet) -> None:
    """Start the processes of builds for GPUs once, while the first evaluator starts: each takes seconds to load torch.

    They take the cores that the devices leave. Builds for a CPU take turns with its evaluator.
    """
    if not KINDS[fleet.device_type].accelerator or fleet.prepared or not (nodes := fleet.building()):
        return
    fleet.prepared = True
    cores = reserved(fleet.device_type, fleet.kind.nodes)["num_cpus"]
    task = ray.remote(num_cpus=KINDS[fleet.device_type].build_cores, scheduling_strategy="SPREAD", max_retries=0)(
        host.prepare_builds
    )
    task = task.options(label_selector=selector(nodes))
    for _ in range(min(_MOST_JOBS, int(sum(node.cpus - cores * node.gpus for node in nodes)))):
        task.remote()


class ClusterBuilder:
    """Builds sources as tasks, on any node with the compilers; see :class:`kgen.evaluator.candidates.build.Builder`."""

    def __init__(self, fleet: Fleet, arch: str) -> None:
        self._fleet = fleet
        self._arch = arch
        self._lock = threading.Lock()  # held while a build is asked for: Ray would start anew for one that comes late
        self._closed: futures.Future[None] = futures.Future()
        task = ray.remote(num_returns=2, num_cpus=KINDS[fleet.device_type].build_cores, scheduling_strategy="SPREAD")(
            host.build
        )
        self._task = functools.lru_cache(maxsize=1)(lambda labels: task.options(label_selector=dict([labels])))

    def build(self, source: str, behind: int = 0) -> BuildReport:
        """Build ``source``, however many others come first; its library stays in Ray's object store until the report is
        dropped.

        Raises :class:`DeviceError` where no node can build, and :class:`EvaluatorError` once this is closed.
        """
        while nodes := self._fleet.building():
            task = self._task(*selector(nodes).items())
            with self._lock:
                self._raise_if_closed()
                built, library = task.remote(source, self._fleet.device_type, self._arch)
            try:
                found = self._result(built.future(), nodes)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else error from None
            except RayError as error:
                reason = f"the processes of its build died: {' '.join(str(error).split())[:200]}"
                return BuildReport(False, False, 0.0, False, "", None, reason, "", from_outside=True)
            if found is None:
                continue
            if found.report is None:
                self._fleet.leave_out(found.node, found.trouble)
                continue
            report = (
                replace(found.report, log=kept_log("build", found.report.log, found.log)) if found.log else found.report
            )
            if report.binary is not None:
                self._fleet.libraries[report] = library
            return report
        raise DeviceError(f"no node of the cluster can build: {self._fleet.why_none()}")

    def close(self) -> None:
        """Give up all builds. A thread that waited for one in Ray itself would not end once Ray is shut down."""
        with self._lock:
            if not self._closed.done():
                self._closed.set_result(None)

    def _raise_if_closed(self) -> None:
        if self._closed.done():
            raise EvaluatorError("the cluster is closed")

    def _result(self, built: "futures.Future[host.Built]", nodes: Sequence[Node]) -> host.Built | None:
        """Wait for a build; ``None`` where every node that it was meant for is gone, so that Ray cannot place it."""
        asked = {node.id for node in nodes}
        while not futures.wait([built, self._closed], _LOOK_SECONDS, futures.FIRST_COMPLETED).done:
            if not asked & {node.id for node in self._fleet.building(now=True)}:
                return None
        self._raise_if_closed()
        return built.result()


def selector(nodes: Sequence[Node]) -> dict[str, str]:
    """The labels by which Ray places something on any of these nodes."""
    return {"ray.io/node-id": f"in({','.join(node.id for node in nodes)})"}


def reserved(device_type: str, nodes: Sequence[Node]) -> dict[str, float]:
    """The reservation of one device: a GPU with some cores, or all cores, since a timing wants them alone."""
    memory = min(_MEMORY, int(min(node.memory / node.devices(device_type) for node in nodes) / 2))
    if not KINDS[device_type].accelerator:
        return {"num_cpus": min(node.cpus for node in nodes), "memory": memory}
    cores = min(node.cpus / node.gpus for node in nodes) // 2
    return {"num_gpus": 1, "num_cpus": min(_GPU_CORES, cores), "memory": memory}


def kept_log(kind: str, log: str, text: str) -> str:
    """Write the text of a log, which is on a node, to the same place on this machine. Returns its path here."""
    file = paths.home().resolve() / "logs" / kind / Path(log).name
    paths.write_whole(file, text)
    return str(file)


class ClusterPool(DevicePool):
    """The devices of a fleet. It reports how many there are, and how many are busy."""

    def __init__(self, devices: Sequence[ClusterDevice], fleet: Fleet, on_event: events.Listener) -> None:
        jobs = min(_MOST_JOBS, int(sum(node.cpus for node in fleet.building())))
        self._left = threading.Event()
        notice = lambda text: self._left.is_set() or on_event(events.Notice(text))
        super().__init__(
            devices, elastic=True, name=fleet.device, jobs=jobs, notice=notice, server=Server(paths.home(), {})
        )
        self._on_event = on_event

    def __enter__(self) -> "ClusterPool":
        super().__enter__()
        threading.Thread(target=self._report, name="kgen-cluster", daemon=True).start()
        return self

    def wait(self) -> None:
        """See :meth:`DevicePool.wait`."""
        super().wait()
        gc.collect()
        gc.freeze()  # Ray has the driver collect garbage while tasks wait; all that was imported or captured stays

    def __exit__(self, *exception: object) -> None:
        """End all actors, their evaluators first, all at once."""
        gc.unfreeze()
        self._left.set()
        closing = [ref for device in self.evaluators if (ref := device.closing()) is not None]
        with contextlib.suppress(RayError):
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS) if closing else None
        super().__exit__(*exception)

    def _report(self) -> None:
        told = None
        while not self._left.wait(_REPORT_SECONDS):
            ready = self.ready
            nodes = len({device.rpartition("/")[0] for device in ready})
            state = events.Cluster(nodes, len(ready), len(self.busy))
            if state != told:
                self._on_event(state)
                told = state


def open_devices(
    fleet: Fleet, number: int, make: MakeEvaluator = host.make_evaluator, resources: Mapping[str, Any] | None = None
) -> OpenDevices:
    """The function that makes the devices of a sweep: so many of the fleet's. ``resources`` replaces their
    reservation."""

    def opened(request: SweepRequest, on_event: events.Listener, started: float) -> ClusterPool:
        until = started + COMPILE_PART * request.seconds if request.seconds else math.inf

        def asked() -> Asked:
            left = until - time.monotonic()
            return Asked(request.problem, fleet.device_type, request.accuracy, request.baselines, left)

        tell = {
            "notice": lambda text: on_event(events.Notice(text)),
            "step": lambda text: on_event(events.Step(text)),
        }
        devices = [ClusterDevice(one, fleet, asked, tell, make, resources) for one in range(number)]
        return ClusterPool(devices, fleet, on_event)

    return opened
