"""The worker's side of kernel tasks: makes inputs, computes the float64 reference, checks variants and times them.

It runs in a process of its own, as candidates do. A variant that ends the process costs itself: the parent starts
another.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from kgen.codegen.render import constant_names
from kgen.compiler.capture.plain import from_json
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.loops.evaluation import evaluate
from kgen.compiler.loops.program import Program
from kgen.compiler.lower.lowering import lower
from kgen.compiler.operators.table import OPS
from kgen.evaluator.candidates.calls import TimedCalls
from kgen.evaluator.candidates.worker import use_built
from kgen.evaluator.correctness.tolerance import FLOOR_RMS, epsilon_of
from kgen.evaluator.timing.measure import sleep_ns
from kgen.protocol import RMS_FACTOR

_SEED = 20261
_SAMPLES, _LEAST_SAMPLES = 9, 3  #: calls of each kind; of a long call
_ENOUGH_NS = 50_000_000  #: of all samples of a kind, once there are enough
_PARTS_OF_REFERENCE = 8  #: float64 copies of all operands and results that evaluating a program holds at once
_ALONE = 16.0  #: epsilons; the allowed error where the library does not compute the task
_COARSE = 1e-2  #: the allowed error beside the library's result, where memory is too small for a reference
_AT_ONCE = 1 << 22  #: elements that are compared in float64 at once
_FINITE = 0.5  #: share of finite results that a check needs; else operands are drawn above zero
_FEW_INDICES = 128  #: limit of integers that no operator uses as an index

Call = Callable[[], Any]


class TaskSubject(TimedCalls):
    """Variants of kernel tasks. ``handlers`` are ``open``, ``check`` and ``measure``, each for one file of variants."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.handlers = {"ready": self.ready, "open": self.open, "check": self.check, "measure": self.measure}
        self.libraries: dict[str, str] = {}
        self.task = ""  # the id of the task whose operands are there
        self.graph: OpGraph
        self.inputs: dict[str, torch.Tensor] = {}
        self.tensors: dict[str, torch.Tensor] = {}  # of weights and buffers
        self.reference: list[torch.Tensor] | None = None
        self.library: list[torch.Tensor] | None = None
        self.overwritten = ""

    def open(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Load a file of variants. Its task's operands and reference are made once."""
        if not self.libraries:
            self.libraries.update(request["libraries"])
            use_built(self.libraries)
        self.libraries.update(request["libraries"])
        if self.flush_buffer is None:
            self.flush_buffer = torch.full((request["flush_bytes"] // 4,), 1.0, device=self.device)
        self.runtime.fill_allocations(False)
        spec = importlib.util.spec_from_file_location("kgen_task", request["path"])
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if request["task"] != self.task:
            self._take(request, module)
        with torch.device(self.device):
            self.model = module.ModelNew().eval()
        self._fill_weights()
        if request["library"] and self.library is None:
            self.library = self._outputs(self._call(request["library"]))
        return {}

    def _take(self, request: dict[str, Any], module: ModuleType) -> None:
        """Make the operands of a task, and what it computes of them in float64."""
        self.task, self.graph, self.library, self.reference = request["task"], from_json(request["graph"]), None, None
        self.inputs, self.tensors = {}, {}
        gc.collect()
        program = lower(self.graph, request["nodes"], self.graph.returns) if request["nodes"] else None
        self.overwritten = request["overwrites"]
        names = constant_names([self.graph])
        constants = {c.name: getattr(module, names[c.text]).to(self.device) for c in self.graph.constants}
        for above_zero in (False, True):
            self._draw(above_zero)
            if program is None or self._too_large(request["most_bytes"]):
                return
            self.reference = self._evaluated(program, constants)
            if self.reference is None:
                return
            floats = [x for x in self.reference if x.is_floating_point() and x.numel()]
            if all(x.isfinite().double().mean() >= _FINITE for x in floats):
                return

    def _too_large(self, most_bytes: int) -> bool:
        """Whether evaluating the task in float64 needs more memory than it may have."""
        types = [self.graph.type(name) for name in self.graph.returns]
        elements = sum(x.numel() for x in (*self.inputs.values(), *self.tensors.values())) + sum(t.numel for t in types)
        return 8 * _PARTS_OF_REFERENCE * elements > most_bytes

    def _evaluated(self, program: Program, constants: Mapping[str, torch.Tensor]) -> list[torch.Tensor] | None:
        """The results in float64; ``None`` where memory is too small: a window's value at each of its taps is as large
        as its result."""
        found = None
        try:
            with torch.device(self.device), torch.no_grad():
                found = evaluate(program, {**self.inputs, **self.tensors, **constants})
        except torch.OutOfMemoryError:
            pass
        if found is None:
            self.runtime.free()
            return None
        return [found[name].reshape(-1) for name in self.graph.returns]

    # Operands

    def _draw(self, above_zero: bool) -> None:
        """Operands like those of a network: normal inputs, weights scaled by what they are summed over, indices in
        range."""
        generator = torch.Generator(self.device).manual_seed(_SEED)
        graph, indices = self.graph, _indices(self.graph)
        for value in (*graph.inputs, *graph.weights):
            shape, dtype = value.type.shape, getattr(torch, value.type.dtype)
            if not (dtype.is_floating_point or dtype.is_complex):
                most = 2 if dtype is torch.bool else indices
                made = torch.randint(0, most, shape, generator=generator, device=self.device).to(dtype)
            elif value in graph.inputs and not above_zero:
                made = torch.randn(shape, generator=generator, device=self.device).to(dtype)
            else:
                made = torch.rand(shape, generator=generator, device=self.device)
                matrix = len(shape) > 1 and max(shape[1:]) > 1 and not above_zero
                made = ((2 * made - 1) / math.sqrt(math.prod(shape[1:])) if matrix else made + 0.5).to(dtype)
            (self.inputs if value in graph.inputs else self.tensors)[value.name] = made

    def _fill_weights(self) -> None:
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                getattr(self.model, name).copy_(tensor)

    # Calls

    def _call(self, method: str) -> Call:
        """A call of one method on the inputs, with weights that are prepared already."""
        kind, inputs = type(self.model), [x.clone() for x in self.inputs.values()]
        run = getattr(kind, method)
        arguments: list[Any] = []
        stream = self.runtime.stream(inputs[0])
        takes = inspect.signature(run).parameters
        if "kept" in takes:
            prepare = getattr(self.model, "_weights" if method == "_run" else f"{method}_weights", None)
            arguments.append(
                prepare(*(stream if "stream" in inspect.signature(prepare).parameters else []), *inputs)
                if prepare
                else None
            )
        arguments += stream if "stream" in takes else []
        self.buffers = inputs
        return partial(run, self.model, *arguments, *inputs)

    def _outputs(self, call: Call) -> list[torch.Tensor]:
        with torch.no_grad():
            found = call()
        self.wait()
        return [x.reshape(-1).clone() for x in (found if isinstance(found, tuple) else (found,))]

    # Requests

    def check(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The error of a method, relative to the result's size, the allowed one, and whether it is within that."""
        self._fill_weights()
        self.runtime.fill_allocations(True)
        self.runtime.poison([list(self.graph.type(name).shape) for name in self.graph.returns])
        found = self._outputs(self._call(request["method"]))
        self.runtime.fill_allocations(False)
        expected = self.reference or self.library
        if expected is None or request["method"] == request["library"]:
            own = max(map(_error, self.library, self.reference)) if self.library and self.reference else None
            return {"rms": own, "allowed": None, "ok": True}
        error, allowed = 0.0, 0.0
        for number, (x, wanted) in enumerate(zip(found, expected, strict=True)):
            epsilon = epsilon_of(x.dtype) if x.is_floating_point() else 0.0
            library = _error(self.library[number], wanted) if self.library and self.reference else math.inf
            limit = RMS_FACTOR * library if math.isfinite(library) else _ALONE * epsilon if self.reference else _COARSE
            one = _error(x, wanted)
            if not one <= max(limit, FLOOR_RMS * epsilon):
                return {
                    "rms": one if math.isfinite(one) else None,
                    "allowed": max(limit, FLOOR_RMS * epsilon),
                    "ok": False,
                }
            error, allowed = max(error, one), max(allowed, limit)
        return {"rms": error, "allowed": allowed, "ok": True}

    def measure(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Nanoseconds of single calls: behind a flushed cache, and behind another call."""
        call = self._call(request["method"])
        buffers = self.buffers
        self.call_model = lambda *_: call()
        with torch.no_grad():
            for _ in range(2):
                self.last = call()
            self.wait()
            queued = self._launch_ns(call)
        found = {}
        for name, cold in (("cold", True), ("warm", False)):
            samples: list[int] = []
            while len(samples) < _LEAST_SAMPLES or (len(samples) < _SAMPLES and sum(samples) < _ENOUGH_NS):
                if self.overwritten:
                    place = list(self.inputs).index(self.overwritten)
                    buffers[place].copy_(self.inputs[self.overwritten])
                    self.wait()
                reply = self.timed(queued, cold=cold)
                if reply.get("exposed") and queued < 1 << 30:
                    queued *= 2
                    continue
                samples.append(reply["ns"])
            found[name] = samples
        self.last = None
        return found

    def _launch_ns(self, call: Call) -> int:
        """Nanoseconds of work to queue in front of a sample on a GPU, so that it hides the launches."""
        if not self.runtime.queues:
            return 0
        started = time.perf_counter_ns()
        self.last = call()
        taken = time.perf_counter_ns() - started
        self.wait()
        return sleep_ns(taken)


def _error(x: torch.Tensor, wanted: torch.Tensor) -> float:
    """The root mean square error relative to that of what is wanted; infinite where other elements are finite."""
    difference = size = 0.0
    for a, b in zip(x.split(_AT_ONCE), wanted.split(_AT_ONCE), strict=True):
        a, b = a.double(), b.double()
        finite = b.isfinite()
        if not torch.equal(finite, a.isfinite()):
            return math.inf
        difference += float((a - b)[finite].square().sum())
        size += float(b[finite].square().sum())
    return math.sqrt(difference / size) if difference and size else math.inf if difference else 0.0


def _indices(graph: OpGraph) -> int:
    """The limit of integers among the operands: the fewest elements along a dimension that one of them may index."""
    sizes = [_FEW_INDICES]
    for node in graph.nodes:
        if node.op in OPS and OPS[node.op].gathers and node.values:
            attributes = dict(node.attrs)
            dims: Sequence[int] = attributes.get("dims") or [attributes.get("dim", 0)]
            sizes += [graph.type(node.values[0]).shape[dim] for dim in dims]
    return max(1, min(sizes))
