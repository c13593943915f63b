"""The nodes of a cluster, told apart: a sweep runs on equal ones, and names the others."""

from __future__ import annotations

import contextlib
import functools
import threading
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kgen.cluster import probe
from kgen.cluster.connection import PACKAGE, connect, connected
from kgen.devices.kinds import HOST, KINDS
from kgen.errors import InputError
from kgen.protocol import BuildReport

_PROBE_SECONDS = 60.0  # for all nodes together
_LEAST_FREE = 1 << 30  # bytes on a node's disk; its builds, logs and caches take a few hundred megabytes
#: The needs of a node, with the remedies.
_NEEDS = {
    "torch": "no torch: pip install torch",
    "ninja": "no ninja: pip install ninja",
    "compiler": "no C++ compiler: install g++, or set CXX",
}
_NEEDS_CUDA = {"nvcc": "no nvcc on PATH: install the CUDA toolkit", "gpu": "no GPU that nvidia-smi shows"}


@dataclass(frozen=True)
class Node:
    """A live node: its id and name in Ray, its resources there, and its facts (``None``: it did not answer)."""

    id: str
    name: str
    cpus: float
    gpus: float
    memory: float
    facts: Mapping[str, Any] | None

    def lacks(self, device_type: str) -> list[str]:
        """The reasons why no device of this type can be used on the node."""
        if self.facts is None:
            return [f"does not answer within {_PROBE_SECONDS:g} s"]
        needs = _NEEDS | (_NEEDS_CUDA if KINDS[device_type].accelerator else {})
        found = [reason for name, reason in needs.items() if not self.facts[name]]
        if self.facts["kgen"] not in (None, own_version()):
            found.append(f"has kgen {self.facts['kgen']}, and this is kgen {own_version()}: install the same version")
        if self.facts["free"] < _LEAST_FREE:
            free = self.facts["free"] / (1 << 30)
            found.append(f"full disk: {free:.1f} GB free at {self.facts['folder']}; free some, or set KGEN_HOME there")
        return found

    def devices(self, device_type: str) -> int:
        """How many devices of a type the node offers: its GPUs, or all of its cores as one."""
        return int(self.gpus) if KINDS[device_type].accelerator else int(self.cpus >= 1)

    def alike(self, device_type: str) -> tuple[Any, ...]:
        """The facts that equal nodes have in common."""
        return tuple((self.facts or {}).get(name) for name in KINDS[device_type].facts)


@dataclass(frozen=True)
class Kind:
    """Equal nodes that offer devices of one type. ``name`` is the model of the GPU or CPU."""

    device_type: str
    name: str
    nodes: tuple[Node, ...]

    @property
    def devices(self) -> int:
        """How many devices the nodes offer together."""
        return sum(node.devices(self.device_type) for node in self.nodes)


@functools.cache
def own_version() -> str:
    """The version of this kgen, as nodes tell theirs."""
    return probe.version(PACKAGE)


def survey(known: Iterable[Node] = ()) -> list[Node]:
    """All live nodes. Those that are not ``known`` are asked what they have."""
    before = {node.id: node for node in known}
    alive = {row["NodeID"]: row for row in ray.nodes() if row["Alive"]}
    task = ray.remote(num_cpus=0, max_retries=0)(probe.facts)
    cloudpickle.register_pickle_by_value(probe)
    try:
        asked = {
            task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(id, soft=False)).remote(): id
            for id in alive
            if id not in before
        }
    finally:
        cloudpickle.unregister_pickle_by_value(probe)
    done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_PROBE_SECONDS) if asked else ([], [])
    facts = {asked[ref]: _answer(ref) for ref in done}
    return [before[id] if id in before else _node(row, facts.get(id)) for id, row in alive.items()]


def _answer(ref: Any) -> Mapping[str, Any] | None:
    try:
        return ray.get(ref)
    except ray.exceptions.RayError:
        return None


def _node(row: Mapping[str, Any], facts: Mapping[str, Any] | None) -> Node:
    has = row["Resources"]
    name = row["NodeName"] or row["NodeManagerAddress"]
    return Node(row["NodeID"], name, has.get("CPU", 0), has.get("GPU", 0), has.get("memory", 0), facts)


def kinds(nodes: Sequence[Node]) -> list[Kind]:
    """The kinds that could run a sweep: GPUs first, then by the number of devices."""
    found: dict[tuple[Any, ...], list[Node]] = {}
    for device_type in KINDS:
        for node in nodes:
            if node.devices(device_type) and not node.lacks(device_type):
                found.setdefault((device_type, *node.alike(device_type)), []).append(node)
    kinds = [Kind(key[0], key[1], tuple(group)) for key, group in found.items()]
    return sorted(kinds, key=lambda kind: (not KINDS[kind.device_type].accelerator, -kind.devices))


class Fleet:
    """The nodes of one kind, the one that ``device`` names (``cpu``, ``cuda``, or a part of a model's name).

    By default, and among several, it is the kind with most devices, and GPUs before CPUs. ``notice`` is told of nodes
    that are left out. Nodes that are ``known`` are not asked again. Raises :class:`InputError` where no node fits.
    Thread-safe.
    """

    def __init__(
        self, device: str | None, notice: Callable[[str], None] = lambda text: None, known: Sequence[Node] = ()
    ) -> None:
        self._notice = notice
        self._lock = threading.Lock()
        self.at_once = 1  # candidates side by side on each device; known once one has started
        self.prepared = False  # whether processes of builds have been started
        self.libraries = WeakKeyDictionary[BuildReport, Any]()  # Ray's references to the libraries of builds
        self._troubled: dict[str, str] = {}  # by node id: why it is not used any more
        self._waits = False
        self._nodes = survey(known)
        fitting = [kind for kind in kinds(self._nodes) if _is_named(kind, device)]
        if not fitting:
            raise InputError(
                f"no node of the cluster fits{f' --device {device}' if device else ''}: {self._why_none(device)}"
            )
        self.kind = fitting[0]
        self.device_type = self.kind.device_type
        self.with_code = any(node.facts and node.facts["kgen"] is None for node in self._nodes)
        for node in self._nodes:
            if node not in known:
                self._tell_of(node)

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes that were alive at the latest look."""
        return self._nodes

    @property
    def device(self) -> str:
        """The name of the device type, as sweeps without a cluster store it."""
        return KINDS[self.device_type].first

    def fitting(self) -> list[Node]:
        """The live nodes of the kind now; nodes that joined are among them."""
        with self._lock:
            self._look()
            return [node for node in self._nodes if node.devices(self.device_type) and not self._why_not(node)]

    def building(self, *, now: bool = False) -> list[Node]:
        """The nodes that can build for the kind: any with the same compilers, ``now`` or at the latest look."""
        if now:
            with self._lock:
                self._look()
        return [node for node in self._nodes if node.cpus >= 1 and node.id not in self._troubled and self._builds(node)]

    def leave_out(self, id: str, reason: str) -> None:
        """Use a node no more, because of something that another node would not meet."""
        with self._lock:
            if id not in self._troubled:
                self._troubled[id] = reason
                name = next((node.name for node in self._nodes if node.id == id), id)
                self._notice(f"{name} is left out: {reason}")

    def tell_of_waiting(self) -> None:
        """Notice, once, that a device waits for its place."""
        with self._lock:
            waits, self._waits = self._waits, True
        if not waits:
            self._notice("waiting for a device of the cluster: those that fit are reserved, or still start")

    def is_hopeless(self) -> bool:
        """Whether nodes live that offer devices, and all of them have been left out."""
        offering = [node for node in self._nodes if node.devices(self.device_type)]
        return bool(offering) and all(node.id in self._troubled for node in offering)

    def _look(self) -> None:
        known = {node.id for node in self._nodes}
        self._nodes = survey(self._nodes)
        for node in self._nodes:
            if node.id not in known:
                self._tell_of(node)

    def why_none(self) -> str:
        """Why no node fits any more."""
        reasons = [f"{node.name}: {why}" for node in self._nodes if (why := self._why_not(node))]
        return "; ".join(reasons) or "every node is gone"

    def _tell_of(self, node: Node) -> None:
        if why := node.devices(self.device_type) and self._why_not(node):
            self._notice(f"{node.name} is left out: {why}")

    def _why_not(self, node: Node) -> str:
        """Why the node is not used: its trouble, a missing part, or its difference from the kind."""
        if node.id in self._troubled:
            return self._troubled[node.id]
        if lacks := node.lacks(self.device_type):
            return "; ".join(lacks)
        pairs = zip(
            KINDS[self.device_type].facts, node.alike(self.device_type), self.kind.nodes[0].alike(self.device_type)
        )
        return ", ".join(f"{name} {own}, not {others}" for name, own, others in pairs if own != others)

    def _builds(self, node: Node) -> bool:
        if not KINDS[self.device_type].accelerator:
            return not self._why_not(node)
        names = ("nvcc", "compiler", "torch", "python")
        first, found = self.kind.nodes[0].facts or {}, node.facts or {}
        return not node.lacks(HOST.name) and all(found.get(name) == first.get(name) for name in names)

    def _why_none(self, device: str | None) -> str:
        """Each node with the reason why it does not serve."""
        reasons = []
        for node in self._nodes:
            types = [name for name in KINDS if node.devices(name) and device in (None, name)] or [HOST.name]
            offers = any(map(node.devices, KINDS))
            named = device in (None, *KINDS)
            why = "; ".join(node.lacks(types[0])) if offers else "offers neither CPUs nor GPUs to Ray"
            other = f"is {(node.facts or {}).get('gpu') or (node.facts or {}).get('cpu')}"
            reasons.append(f"{node.name}: {why or ('no GPU' if named else other)}")
        return " | ".join(reasons)


def _is_named(kind: Kind, device: str | None) -> bool:
    return device is None or device == kind.device_type or (device not in KINDS and device.lower() in kind.name.lower())


@contextlib.contextmanager
def opened(asked: str, device: str | None, notice: Callable[[str], None]) -> Iterator[tuple[str, Fleet]]:
    """Connect to a cluster. Yields its address, and the nodes of the kind that ``device`` names."""
    with connected(asked) as address:
        fleet = Fleet(device, notice)
        if fleet.with_code:
            connect(address, with_code=True)
        yield address, fleet
