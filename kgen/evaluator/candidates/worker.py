"""The worker: a process that holds one subject, a candidate or a baseline, and runs it on request.

It gets inputs and weights, never an expected value or the seed of an input. It answers with what it saw: the structure
and bytes of outputs, and raw times. The parent and the oracle judge them. :class:`Subject` is all that own candidates
and baselines need; :mod:`kgen.evaluator.strict.subject` adds the checks of foreign ones.

The harness binds its functions of torch to names here, before a candidate is loaded: a candidate that patches torch
changes only its own behaviour.
"""

import gc
import importlib
import importlib.util
import math
import os
import sys
import time
import traceback
from contextlib import closing, contextmanager, nullcontext
from itertools import product
from typing import Any, Callable, Collection, Iterator, Mapping

import torch

from kgen.candidate import ENTRY, LAUNCH
from kgen.devices.kinds import HOST
from kgen.evaluator.candidates.build import Extension
from kgen.evaluator.correctness.distributions import change_weights, mixed, mixtures, seed_of
from kgen.evaluator.correctness.reference import Run, construct, set_flags
from kgen.evaluator.runtime import driver, sandbox
from kgen.evaluator.runtime.arena import Arena, describe, is_inexact, is_tensor, map_tensors, nodes, same_bits, span, tensors
from kgen.evaluator.runtime.channel import Channel
from kgen.evaluator.runtime.device import device_of
from kgen.evaluator.runtime.fences import Fences
from kgen.evaluator.runtime.members import BUFFERS, PARAMETERS, saved, unsaved
from kgen.problems.problem import Problem, load
from kgen.protocol import COMPILER, GRAPH_BASELINE

FILE_BYTES = 256 << 20  #: the largest file that a candidate may write, its log included
_MESSAGE_CHARACTERS = 400
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc")  # in a RuntimeError's message
_FENCED_BYTES = 1 << 27  # bytes of outputs; behind what calls with more allocate, there is no fence
_FENCE = 512  #: elements on each side of an input; keeps it aligned to 512 bytes
_CANDIDATE = "kgen_candidate"  # the module of a candidate's file
_COMPILE_MODES = {"compile": "default", "compile-max-autotune": "max-autotune-no-cudagraphs", GRAPH_BASELINE: "reduce-overhead"}
_LONG_NS = 200_000_000  # of a call; the time of a longer one is known from fewer of them

_now = time.perf_counter_ns
_full = torch.full
_no_grad = torch.no_grad
_seed = torch.Generator.manual_seed
_copy, _fill, _multiply = torch.Tensor.copy_, torch.Tensor.fill_, torch.Tensor.mul_

Guard = tuple[torch.Tensor, torch.Tensor]  #: a tensor's memory with fences around it, and the fences as they must stay


class Refused(Exception):
    """The subject's file is no candidate; the message says why."""


class Subject:
    """The module under evaluation, and everything that calling it needs. ``handlers`` maps requests to methods."""

    sees_launches = True  #: whether a file's function for launches is kgen's own

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.runtime = device_of(options["device"])
        self.device = self.runtime.name
        self.accuracy, self.flags = options["accuracy"], options["flags"]
        self.place = self.device if options["shared"] else HOST.name  # where the oracle's arenas lie
        self.model: torch.nn.Module  # these two from loading on
        self.call_model: Callable[..., Any]
        self.names: dict[str, Any] = {}  # of the candidate's file
        self.enters = False  # whether its whole forward may be one call of C: the launches of that are not seen
        self.matched = False
        self.base: dict[str, torch.Tensor] = {}
        self.weights: dict[str, torch.Tensor] = {}
        self.parameters: list[str] = []  # the names among them that are parameters
        self.change = "drawn"  # how the weights are changed now
        self.ties: dict[str, str] = {}  # a parameter's second name -> its first
        self.own: set[str] = set()  # buffers that the problem has not
        self.unsaved: frozenset[str] = frozenset()  # tensors of no state dict that the problem's forward writes
        self.buffers: list[Any] = []  # the inputs of timed calls
        self.pool: list[list[Any]] = []
        self.modes: list[str] = []
        self.mode = ""  # of the latest call
        self.last: Any = None  # the latest output
        self.frees = False  # whether memory of timed calls is freed between them
        self.holds_outputs = False  # whether large outputs of both runs are held: a foreign file may use the first's memory
        self.behind = ""  # memory that the runs of a validation wrote and must not
        self.second: Any = None  # the second run in validation, where the oracle's memory holds one at a time
        self.key = 0  # the source of the latest timed call's contents
        self.guards: list[Guard] = []  # of the buffers
        self.flush_buffer: torch.Tensor | None = None
        self.fences = Fences(self.device.partition(":")[0], self.runtime.capturing)  # behind what forward allocates in validation
        self.output: Arena  # the oracle's memory, from loading on
        self.generators: list[torch.Generator] = []
        self.views: dict[str, list[int]] = {}  # by mode: output tensors that share memory in the problem's own output too
        self.missing: list[str] = []  # the limits that the system does not allow
        requests = ("ready", "load", "run", "write_second", "draws", "audit", "prepare", "block", "fetch", "rest")
        self.handlers: dict[str, Callable[..., dict[str, Any]]] = {name: getattr(self, name) for name in requests}

    def start(self) -> None:
        """Start the device, and its clock."""
        self.runtime.start(fenced=False)

    def confine(self, options: Mapping[str, Any]) -> list[str]:
        """Limit this process before it runs a candidate. Returns the limits that the system does not allow."""
        return sandbox.apply({
            "being the first to end when memory runs out": sandbox.end_first,
            "resource limits": lambda: sandbox.limit(self.runtime.address_space(options["host_bytes"]), FILE_BYTES),
        })

    def begin(self, channel: Channel, options: Mapping[str, Any]) -> None:
        """Called once, before the first request."""

    def before_answer(self, do: str) -> None:
        """Called before the answer to each request is sent."""

    def ready(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The first answer: this process is confined and has its device."""
        return {"missing": self.missing}

    def load(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Construct the module and give it the weights where names and shapes agree."""
        weights, constructor, outputs = fds
        arena = Arena.open(weights, request["state_bytes"], self.place)
        self.base = arena.read(request["state"], self.device)  # in the arena's memory, which stays
        self.output = Arena.open(outputs, request["output_bytes"], self.place, writable=True)
        with closing(Arena(constructor, writable=False)) as arena:
            init = arena.read(request["init"], self.device)
        self.modes, self.views, self.ties = request["modes"], request["views"], request["ties"]
        if request["flush_bytes"]:  # before the candidate is loaded: it may replace the allocator
            self.flush_buffer = _full((request["flush_bytes"] // 4,), 1.0, device=self.device)
        self.generators = self.runtime.generators()  # those of a GPU exist once it has started
        if "baseline" in request:
            make = load(Problem(**request["problem"])).model
            set_flags(self.accuracy, self.flags)  # the problem's file may have set others
        else:
            use_built(request["libraries"])
            make = _candidate(request["path"], init, request["dtype"])
            self.names = vars(sys.modules[_CANDIDATE]) if self.sees_launches else {}
        self.model = construct(make, self.device, request["construction"])
        if not isinstance(self.model, torch.nn.Module):
            raise Refused(f"ModelNew(...) is a {type(self.model).__name__}, not a torch.nn.Module")
        self.parameters = list(saved(self.model, PARAMETERS))
        complete = self._match(frozenset(request["unsaved"]))
        self.call_model = self.model
        if request.get("baseline", "eager") != "eager":
            self.call_model = torch.compile(self.model, mode=_COMPILE_MODES[request["baseline"]])
        if request.get("baseline") == GRAPH_BASELINE:
            self.call_model = _with_own_outputs(self.call_model)
        return {"matched": self.matched, "complete": complete}

    def _match(self, unsaved: frozenset[str]) -> bool:
        """Give the module the problem's weights where names and shapes agree; else it keeps its own. ``unsaved`` are the
        names of the problem's state in no state dict. Returns whether the module has all of that: one that keeps state
        in its own way is judged by its outputs and its state dict."""
        self.unsaved = unsaved
        own = saved(self.model, PARAMETERS) | self._state_tensors()
        for name, value in own.items():
            if not is_tensor(value):
                raise Refused(f"{name} is a {type(value).__name__}, not a tensor")
        mine, theirs = ({k: (v.shape, v.dtype) for k, v in state.items()} for state in (own, self.base))
        complete = mine == theirs
        self.matched = complete or _without(mine, unsaved) == _without(theirs, unsaved)
        if self.matched:
            if not complete:
                self.unsaved, self.base = frozenset(), _without(self.base, unsaved)
            self._set_weights(force=True)
        else:
            missing = [kind for k, kind in theirs.items() if k not in mine]
            self.own = {k for k, kind in mine.items() if k not in theirs and kind not in missing}
            self.base = self.weights = {k: v.detach().clone() for k, v in own.items()}
        return complete

    def _set_weights(self, change: str = "drawn", *, force: bool = False) -> None:
        """Load the weights with that change, unless they have it already, and restore the state that a forward changes."""
        if self.matched and (force or change != self.change):
            self.weights = change_weights(self.base, change, self.ties)
            self.model.load_state_dict(_without(self.weights, self.unsaved))
            self.change = change
        self._restore_buffers()

    def _state_tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that a forward may change: buffers of the state dict, and the problem's state in none."""
        found = saved(self.model, BUFFERS)
        if self.unsaved:
            found |= {name: x for name, x in unsaved(self.model).items() if name in self.unsaved}
        return found

    def _restore_buffers(self) -> None:
        """Write back the buffers that changed. Others keep their version, so that weights folded from them stay valid."""
        with _no_grad():
            for name, buffer in self._state_tensors().items():
                if name in self.weights and name not in self.own and not _bitwise(buffer, self.weights[name]):
                    _copy(buffer, self.weights[name])

    def run(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Two forwards on the same inputs. Reports outputs, buffers, shared memory, and whether anything else changed.
        The second forward draws the same random numbers as the first; with ``go_on`` it draws the next ones."""
        with closing(Arena.open(fds[0], request["bytes"], self.place)) as arena:
            return self._run_twice(arena.read(request["inputs"], self.device), request)

    def _run_twice(self, pristine: list[Any], request: dict[str, Any]) -> dict[str, Any]:
        guards: list[Guard] = []
        self.behind = ""
        inputs = self._guarded_inputs(pristine, guards)
        self._set_weights(request["change"])
        first, state = self._forward(inputs, request)
        if not self._is_on_device(first):
            return {"first": describe([first, state])[0]}
        reply: dict[str, Any] = {"mutated": self._mutated(inputs, pristine), "alias": self._alias(first, inputs)}
        reply |= self._write("first", [first, state], request["place"])
        if not self.holds_outputs and reply["end"] <= self.output.size < 2 * reply["end"]:  # one of large outputs at a time
            first, state = self.output.read(reply["first"], self.device)
        self._set_weights(request["change"])
        self.enters = True
        second, later = self._forward(inputs, request, seeded=not request.get("go_on"))
        self.enters = False
        reply["mutated"] = _beside(guards) or self.behind or reply["mutated"] or self._mutated(inputs, pristine)
        reply["alias"] = reply["alias"] or self._alias(second, inputs) or self._reused(first, second)
        same = _bitwise([first, state], [second, later])
        if not same:
            self.second = [second, later]
            reply |= self._write("second", self.second, request["end"])
        return reply | {"repeatable": same}

    def write_second(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Write the second run's tensors over the first's."""
        return self._write("second", self.second, 0)

    def draws(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A forward on each of some fresh inputs, which keys mix of two sets. Writes the tensors with these ``numbers``."""
        chosen = slice(request["first"], request["first"] + request["count"])
        drawn: list[Any] = []
        with closing(Arena.open(fds[0], request["bytes"], self.place)) as given, closing(
                Arena.open(fds[1], request["output_bytes"], self.place, writable=True)) as memory:
            sets = given.read(request["sets"], self.device)
            for place, (key, rng) in [*enumerate(zip(request["keys"], request["rngs"]))][chosen]:
                self._set_weights(request["change"])
                every = tensors([*self._forward(mixed(sets, key), request | {"rng": rng})])
                found = [every[number] for number in request["numbers"] if number < len(every)]
                node, end = describe(found, place * request["step"])
                if end <= memory.size:
                    memory.write(found, node)
                drawn.append(node)
            self._wait()
        return {"drawn": drawn}

    def _guarded_inputs(self, pristine: list[Any], guards: list[Guard]) -> list[Any]:
        """Copies of the inputs between fences."""
        return map_tensors(pristine, lambda x: self._guarded(x, guards))

    def _guarded(self, x: torch.Tensor, guards: list[Guard], guard: torch.Tensor | None = None) -> torch.Tensor:
        """A copy of ``x`` between fences of NaN or the largest integer: reads and writes beyond it show."""
        fill = float("nan") if is_inexact(x) else True if x.dtype == torch.bool else torch.iinfo(x.dtype).max
        guard = torch.empty(span(x) + 2 * _FENCE, dtype=x.dtype, device=self.device) if guard is None else guard
        _fill(guard, fill)
        guards.append((guard, _fences(guard)))
        return _copy(guard.as_strided(x.shape, x.stride(), guard.storage_offset() + _FENCE), x)

    def _forward(self, inputs: list[Any], request: dict[str, Any], *, seeded: bool = True) -> Run:
        self.mode = request["mode"]
        self.model.train(self.mode == "train")
        self.runtime.poison(request["sizes"])
        if seeded:
            self._seed(request["rng"])
        fenced = 4 * sum(map(math.prod, request["sizes"])) <= _FENCED_BYTES  # larger ones need the memory
        with _no_grad(), self._fenced() if fenced else nullcontext():
            output = self.call_model(*inputs)
        self._wait()
        self.behind = self.behind or ("" if self.fences.is_whole() else "memory behind an output or a workspace")
        return output, self._state()

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        """Fences behind what the block allocates, and in front of the parts of an allocation that launches get."""
        launch, entry = self.names.get(LAUNCH), self.names.get(ENTRY)

        def seen(*arguments: Any) -> None:
            self.fences.see_launch(arguments)
            launch(*arguments)

        with self.fences:
            if launch is not None:
                self.names[LAUNCH] = seen
            if entry is not None and not self.enters:
                self.names[ENTRY] = lambda *given: None
            try:
                yield
            finally:
                self.names |= {name: own for name, own in ((LAUNCH, launch), (ENTRY, entry)) if own is not None}

    def _seed(self, number: int) -> None:
        """Seed the generators one by one; ``torch.manual_seed`` also asks devices that a candidate may register."""
        for generator in self.generators:
            _seed(generator, number)

    def _is_on_device(self, output: Any) -> bool:
        """Whether all tensors of ``output`` are plain tensors on the subject's device."""
        device = self.device.partition(":")[0]
        return all(leaf.get("device", device) == device and leaf["kind"] != "other" for leaf in nodes(describe(output)[0]))

    def _state(self) -> dict[str, torch.Tensor]:
        found = self._state_tensors()
        return {name: value.detach().clone() for name, value in found.items() if name in self.weights}

    def _mutated(self, inputs: list[Any], pristine: list[Any]) -> str:
        same = list(map(_bitwise, inputs, pristine))
        return "" if all(same) else f"input {same.index(False)}"

    def _alias(self, output: Any, inputs: list[Any]) -> str:
        output = self._fresh(output)
        if _overlaps(output, tensors(inputs)):
            return "an input"
        members = [*saved(self.model, PARAMETERS).values(), *self._state_tensors().values()]
        return "a parameter or buffer" if _overlaps(output, members) else ""

    def _reused(self, first: Any, second: Any) -> str:
        """The first output, if the second uses its memory."""
        return _earlier(self._fresh(second), self._fresh(first))

    def _fresh(self, output: Any) -> list[torch.Tensor]:
        """The tensors of the latest ``output`` that must be in memory of their own."""
        return [x for index, x in enumerate(tensors(output)) if index not in self.views.get(self.mode, ())]

    def _write(self, name: str, value: Any, offset: int) -> dict[str, Any]:
        """Describe ``value``, and write its bytes to the oracle's memory if they fit."""
        node, end = describe(value, offset)
        if end <= self.output.size:
            self.output.write(value, node)
        return {name: node, "end": end}

    def audit(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Whether a parameter changed."""
        found = saved(self.model, PARAMETERS)
        changed = (name for name in self.parameters if not _holds(found.get(name), self.weights[name]))
        return {"mutated": next((f"parameter {name}" for name in changed), "")}

    def prepare(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Prepare for timed calls: map the pool of inputs, and measure how long calls and launches take."""
        self.second, self.frees = None, request["frees"]
        self.runtime.fill_allocations(False)
        arena = Arena.open(fds[0], request["pool_bytes"], self.place)
        self.pool = arena.read(request["pool"], self.device)
        self._wake()
        self._set_weights(force=True)
        first = self._call_ns()
        before = self.runtime.begin_peak()
        steady = min(self._call_ns() for _ in range(1 if first > _LONG_NS else 2))
        call_bytes = max(0, self.runtime.peak() - before)
        launch = min(self._call_ns(waits=False) for _ in range(3)) if self.runtime.queues else 0
        gc.freeze()  # the garbage collector lists none of the harness's objects
        return {"first_ns": first, "steady_ns": steady, "launch_ns": launch, "call_bytes": call_bytes}

    def _wake(self) -> None:
        """Make the buffers of timed calls, unless they are there."""
        if not self.buffers:
            self.buffers = map_tensors(self.pool[0], lambda x: self._guarded(x, self.guards))

    def rest(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Free the memory of timed calls until the next one."""
        self.buffers, self.guards, self.last = [], [], None
        self._wait()
        self.runtime.free()
        return {}

    def _wait(self) -> None:
        """Wait until the device is idle; the CPU always is."""
        self.runtime.clock.wait()

    def _call_ns(self, *, waits: bool = True) -> int:
        """Nanoseconds until a call returns; where it ``waits``, until the device is idle."""
        self._wait()
        started = _now()
        self._call_all()
        if waits:
            self._wait()
        return _now() - started

    def _call_all(self) -> None:
        """One forward in each mode."""
        with _no_grad():
            for mode in self.modes:
                self._set_mode(mode)
                self.last = None if self.frees else self.last  # two large outputs are not held at once
                self.last = self.call_model(*self.buffers)

    def _set_mode(self, mode: str) -> None:
        self.mode = mode
        if self.model.training != (mode == "train"):
            self.model.train(mode == "train")

    def block(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A sample block: for each of ``keys`` one timed call in each of ``modes``, on contents made by that key. ``ns``
        lists nanoseconds by key, summed over the modes. ``exposed`` says whether launches were timed too; ``alias``
        names the output before if an output used its memory."""
        found = dict.fromkeys(request["keys"], 0)
        exposed, alias = False, ""
        if self.frees and self.buffers and self.last is None:  # fetched and freed: new memory takes time
            self._call_all()
        for key, mode in product(request["keys"], request["modes"]):
            self.last = None if self.frees else self.last
            previous = self._fresh(self.last)
            self._renew(key, mode)
            reply = self._timed(request["sleep_ns"], cold=request["cold"])
            found[key] += reply["ns"]
            exposed = exposed or reply.get("exposed", False)
            alias = alias or _earlier(self._fresh(self.last), previous)
        return {"ns": [*found.values()], "exposed": exposed, "alias": alias}

    def _renew(self, key: int, mode: str) -> None:
        """Give the next call new contents in the same buffers, the buffers and random numbers that the oracle has."""
        self.key = key
        self._wake()
        self._set_mode(mode)
        self._restore_buffers()
        self._seed(seed_of(key))
        for content in mixtures(self.buffers, self.pool, key):
            content.fill()
        self._wait()

    def _timed(self, sleep_ns: int, *, cold: bool) -> dict[str, Any]:
        """One call and its time. On a GPU, queued work of ``sleep_ns`` hides the launches."""
        with _no_grad():
            self.runtime.queue(sleep_ns)
            self._flush(cold)
            self.last, reply = self.runtime.clock.timed(self.call_model, self.buffers)
            return reply

    def _flush(self, cold: bool) -> None:
        """Flush the cache by writing a buffer of twice its size."""
        if self.flush_buffer is not None and cold:
            _multiply(self.flush_buffer, -1.0)

    def fetch(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Write out the latest timed output and the buffers after it; report whether the inputs changed."""
        given = mixtures(self.buffers, self.pool, self.key)
        same = all(same_bits(part, contents) for content in given for part, contents in content.parts())
        mutated = _beside(self.guards) or ("" if same else "an input")
        reply = {"mutated": mutated} | self._write("output", [self.last, self._state()], 0)
        if self.frees and not self.holds_outputs:  # the oracle takes memory now, to judge it
            self.last = None
            self.runtime.free()
        return reply


def _with_own_outputs(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of a module that replays graphs of torch's compiler. The next replay writes over their outputs, so that they are
    copied, as a caller must do who keeps one."""
    def call(*inputs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return map_tensors(compiled(*inputs), torch.clone)

    return call


def _without(found: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


def _bitwise(a: Any, b: Any) -> bool:
    """Whether two values have the same structure and the same bits."""
    return describe(a)[0] == describe(b)[0] and all(map(same_bits, tensors(a), tensors(b)))


def _holds(parameter: Any, value: torch.Tensor) -> bool:
    """Whether a parameter has the bits of ``value``, in any memory layout."""
    kinds = [(x.shape, x.dtype, x.device) for x in (parameter, value) if is_tensor(x)]
    return len(kinds) == 2 and kinds[0] == kinds[1] and same_bits(parameter.detach(), value)


def _fences(guard: torch.Tensor) -> torch.Tensor:
    """The elements before and behind the tensor in ``guard``."""
    return torch.cat([guard[:_FENCE], guard[-_FENCE:]])


def _beside(guards: list[Guard]) -> str:
    """Memory beside a tensor, if a fence has changed."""
    return "" if all(same_bits(_fences(guard), fences) for guard, fences in guards) else "memory beside an input"


def _span(x: torch.Tensor) -> tuple[int, int]:
    storage = x.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _overlaps(output: Any, others: list[torch.Tensor]) -> bool:
    """Whether a tensor of ``output`` shares memory with one of ``others``."""
    spans = [_span(x) for x in others if x.numel()]
    return any(start < other_end and other_start < end
               for start, end in (_span(x) for x in tensors(output) if x.numel()) for other_start, other_end in spans)


def _earlier(output: Any, others: list[torch.Tensor]) -> str:
    """An earlier output, if a tensor of ``output`` shares memory with it."""
    return "an earlier call's output" if _overlaps(output, others) else ""


def _candidate(path: str, init: list[Any], dtype: str | None) -> Callable[[], Any]:
    """Import the candidate's file; returns its constructor, whose module is converted to the problem's dtype."""
    spec = importlib.util.spec_from_file_location(_CANDIDATE, path)
    module = sys.modules[_CANDIDATE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not isinstance(getattr(module, "ModelNew", None), type):
        raise Refused("the file has no class ModelNew")
    if dtype is None:
        return lambda: module.ModelNew(*init)
    return lambda: module.ModelNew(*init).to(getattr(torch, dtype))


def use_built(libraries: Mapping[str, str]) -> None:
    """Have ``load_inline`` load the libraries that the builder made, by the content of their extensions. They were
    checked against source, flags and compilers; torch's own way runs compilers and ninja to find that out (0.1 s)."""
    if not libraries:
        return
    from torch.utils import cpp_extension

    build = cpp_extension.load_inline

    def load_inline(
        name: str, cpp_sources: Any = "", cuda_sources: Any = "", extra_cflags: Any = (), extra_cuda_cflags: Any = (),
        **options: Any,
    ) -> Any:
        flags = tuple(extra_cflags or ()), tuple(extra_cuda_cflags or ())
        if options == {"is_python_module": False, "no_implicit_headers": True}:
            library = libraries.get(Extension(name, cpp_sources, cuda_sources or "", *flags).content)
            if library is not None:
                torch.ops.load_library(library)
                return library
        return build(name, cpp_sources, cuda_sources or None, extra_cflags=flags[0], extra_cuda_cflags=flags[1], **options)

    cpp_extension.load_inline = load_inline


def _failure(error: BaseException) -> dict[str, Any]:
    text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS]
    memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY))
    return {"error": f"{type(error).__name__}: {text}" if text else type(error).__name__, "memory": memory}


def main(channel: Channel, options: dict[str, Any]) -> None:
    """The worker's process: set limits, then answer requests until the channel closes."""
    sys.stdout.reconfigure(line_buffering=True)  # a later flush could run code of the candidate
    os.chdir(options["scratch"])
    gc.collect()
    gc.disable()  # in every call, so that timed calls look like others
    module, _, name = options["subject"].partition(":")  # a worker of own candidates never loads the strict one
    subject = getattr(importlib.import_module(module), name)(options)
    subject.start()
    subject.runtime.limit_memory(options.get("device_share", 1.0))
    if options["kind"] == "candidate":
        subject.missing = subject.confine(options)
    elif options.get("sandboxed"):  # a baseline of a foreign problem
        sandbox.confine(sandbox.foreign(options, address_space=None, file_bytes=FILE_BYTES))
    torch.set_num_threads(options["threads"])  # starts threads, which inherit the limits
    set_flags(options["accuracy"], options["flags"])
    if options["kind"] == "candidate":
        subject.runtime.fill_allocations(True)
    if options.get("compiles"):
        importlib.import_module(COMPILER)
    subject.begin(channel, options)
    gc.freeze()
    while True:
        request, fds = channel.receive()
        try:
            reply = subject.handlers[request["do"]](request, fds)
        except (driver.DriverError, Refused) as error:
            unshared = isinstance(error, driver.DriverError) and request["do"] == "load"
            reply = {"error": str(error), "memory": False, "unshared": unshared}
        except BaseException as error:
            traceback.print_exc()
            reply = _failure(error)
        subject.before_answer(request["do"])
        channel.send(reply | {"id": request["id"]})
