"""Timed calls of one module in this process: contents that are fresh in each call, and raw times.

The functions of torch are bound here, before a candidate is loaded.
"""

import gc
import time
from itertools import product
from typing import Any, Callable, Iterator, Mapping

import torch

from kgen.devices.kinds import HOST
from kgen.evaluator.candidates import guards
from kgen.evaluator.candidates.guards import guarded
from kgen.evaluator.candidates.state import State
from kgen.evaluator.correctness.distributions import Mixable, Mixture, mixtures, seed_of
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.arena import Arena, describe, map_tensors, same_bits, tensors
from kgen.evaluator.runtime.channel import Channel
from kgen.evaluator.runtime.device import device_of

FILE_BYTES = 256 << 20  #: the largest file that a candidate may write, its log included
_LONG_NS = 200_000_000  # of a call; the time of a longer one is known from fewer of them

_now = time.perf_counter_ns
_no_grad = torch.no_grad
_seed = torch.Generator.manual_seed
_multiply = torch.Tensor.mul_


class TimedCalls:
    """A process that calls one module and times it. ``handlers`` maps requests to methods."""

    holds_outputs = False  #: whether large outputs of both runs are held: a foreign file may use the first's memory

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.runtime = device_of(options["device"])
        self.device = self.runtime.name
        self.place = self.device if options["shared"] else HOST.name  # where the oracle's arenas lie
        self.state = State()
        self.model: torch.nn.Module  # these three from loading on
        self.call_model: Callable[..., Any]
        self.output: Arena  # the oracle's memory
        self.modes: list[str] = []
        self.mode = ""  # of the latest call
        self.generators: list[torch.Generator] = []
        self.views: dict[
            str, list[int]
        ] = {}  # by mode: output tensors that share memory in the problem's own output too
        self.buffers: list[Any] = []  # the inputs of timed calls
        self.pool: list[list[Any]] = []
        self.is_mixable = Mixable()  # of the pool
        self.guards: list[guards.Guard] = []  # of the buffers
        self.last: Any = None  # the latest output
        self.frees = False  # whether memory of timed calls is freed between them
        self.key = 0  # the source of the latest timed call's contents
        self.flush_buffer: torch.Tensor | None = None
        self.missing: list[str] = []  # the limits that the system does not allow
        self.handlers: dict[str, Callable[..., dict[str, Any]]] = {}
        self.answers("ready", "rehearse", "prepare", "block", "fetch", "rest")

    def answers(self, *requests: str) -> None:
        """Have each of these requests answered by the method of its name."""
        self.handlers |= {name: getattr(self, name) for name in requests}

    # The process

    def start(self) -> None:
        """Start the device, and its clock."""
        self.runtime.start(fenced=False)

    def confine(self, options: Mapping[str, Any]) -> list[str]:
        """Limit this process before it runs a candidate. Returns the limits that the system does not allow."""
        return sandbox.apply(
            {
                "being the first to end when memory runs out": sandbox.end_first,
                "resource limits": lambda: sandbox.limit(self.runtime.address_space(options["host_bytes"]), FILE_BYTES),
            }
        )

    def begin(self, channel: Channel, options: Mapping[str, Any]) -> None:
        """Called once, before the first request."""

    def before_answer(self, do: str) -> None:
        """Called before the answer to each request is sent."""

    def ready(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The first answer: this process is confined and has its device."""
        return {"missing": self.missing}

    # One call

    def wait(self) -> None:
        """Wait until the device is idle; the CPU always is."""
        self.runtime.clock.wait()

    def seed(self, number: int) -> None:
        """Seed the generators one by one; ``torch.manual_seed`` also asks devices that a candidate may register."""
        for generator in self.generators:
            _seed(generator, number)

    def set_mode(self, mode: str) -> None:
        self.mode = mode
        if self.model.training != (mode == "train"):
            self.model.train(mode == "train")

    def fresh(self, output: Any) -> list[torch.Tensor]:
        """The tensors of the latest ``output`` that must be in memory of their own."""
        return [x for index, x in enumerate(tensors(output)) if index not in self.views.get(self.mode, ())]

    def write(self, name: str, value: Any, offset: int) -> dict[str, Any]:
        """Describe ``value``, and write its bytes to the oracle's memory if they fit."""
        node, end = describe(value, offset)
        if end <= self.output.size:
            self.output.write(value, node)
        return {name: node, "end": end}

    def call_ns(self, *, waits: bool = True) -> int:
        """Nanoseconds until a call returns; where it ``waits``, until the device is idle."""
        self.wait()
        started = _now()
        self.call_all()
        if waits:
            self.wait()
        return _now() - started

    def call_all(self) -> None:
        """One forward in each mode."""
        with _no_grad():
            for mode in self.modes:
                self.set_mode(mode)
                self.last = None if self.frees else self.last  # two large outputs are not held at once
                self.last = self.call_model(*self.buffers)

    def renew(self, key: int, mode: str) -> None:
        """Give the next call new contents in the same buffers, the buffers and random numbers that the oracle has."""
        self.key = key
        self.wake()
        self.set_mode(mode)
        self.state.restore()
        self.seed(seed_of(key))
        for content in self.mixtures(key):
            content.fill()
        self.wait()

    def mixtures(self, key: int) -> Iterator[Mixture]:
        """The contents of a timed call."""
        return mixtures(self.buffers, self.pool, key, self.is_mixable)

    def wake(self) -> None:
        """Make the buffers of timed calls, unless they are there."""
        if not self.buffers:
            self.buffers = map_tensors(self.pool[0], lambda x: guarded(x, self.device, self.guards))

    def flush(self, cold: bool) -> None:
        """Flush the cache by writing a buffer of twice its size."""
        if self.flush_buffer is not None and cold:
            _multiply(self.flush_buffer, -1.0)

    def timed(self, sleep_ns: int, *, cold: bool) -> dict[str, Any]:
        """One call and its time. On a GPU, queued work of ``sleep_ns`` hides the launches."""
        with _no_grad():
            self.runtime.queue(sleep_ns)
            self.flush(cold)
            self.last, reply = self.runtime.clock.timed(self.call_model, self.buffers)
            return reply

    # Requests

    def rehearse(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Map the pool of inputs, and do once what the harness does before a timed call: a GPU loads each kernel when it
        is first launched, which takes long."""
        self.frees = request["frees"]
        self.runtime.fill_allocations(False)
        arena = Arena.open(fds[0], request["pool_bytes"], self.place)
        self.pool, self.is_mixable = arena.read(request["pool"], self.device), Mixable()
        for x in tensors(self.pool):
            if x.ndim and x.numel():
                self.is_mixable(x)
        self.renew(0, self.modes[0])
        self.runtime.queue(1)
        self.flush(True)
        self.wait()
        return {}

    def prepare(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Measure how long calls and launches take, after a rehearsal."""
        self.wake()
        self.state.use(force=True)
        first = self.call_ns()
        before = self.runtime.begin_peak()
        steady = min(self.call_ns() for _ in range(1 if first > _LONG_NS else 2))
        call_bytes = max(0, self.runtime.peak() - before)
        launch = min(self.call_ns(waits=False) for _ in range(3)) if self.runtime.queues else 0
        gc.freeze()  # the garbage collector lists none of the harness's objects
        return {"first_ns": first, "steady_ns": steady, "launch_ns": launch, "call_bytes": call_bytes}

    def block(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A sample block: for each of ``keys`` one timed call in each of ``modes``, on contents made by that key.
        ``ns`` lists nanoseconds by key, summed over the modes. ``exposed`` says whether launches were timed too;
        ``alias`` names the output before if an output used its memory."""
        found = dict.fromkeys(request["keys"], 0)
        exposed, alias = False, ""
        if self.frees and self.buffers and self.last is None:  # fetched and freed: new memory takes time
            self.call_all()
        for key, mode in product(request["keys"], request["modes"]):
            self.last = None if self.frees else self.last
            previous = self.fresh(self.last)
            self.renew(key, mode)
            reply = self.timed(request["sleep_ns"], cold=request["cold"])
            found[key] += reply["ns"]
            exposed = exposed or reply.get("exposed", False)
            alias = alias or guards.earlier(self.fresh(self.last), previous)
        return {"ns": [*found.values()], "exposed": exposed, "alias": alias}

    def fetch(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Write out the latest timed output and the buffers after it; report whether the inputs changed."""
        given = self.mixtures(self.key)
        same = all(same_bits(part, contents) for content in given for part, contents in content.parts())
        mutated = guards.beside(self.guards) or ("" if same else "an input")
        reply = {"mutated": mutated} | self.write("output", [self.last, self.state.copied()], 0)
        if self.frees and not self.holds_outputs:  # the oracle takes memory now, to judge it
            self.last = None
            self.runtime.free()
        return reply

    def rest(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Free the memory of timed calls until the next one."""
        self.buffers, self.guards, self.last = [], [], None
        self.wait()
        self.runtime.free()
        return {}
