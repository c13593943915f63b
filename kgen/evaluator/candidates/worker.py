"""The worker: a process that holds one subject, a candidate or a baseline, and runs it on request.

It gets inputs and weights, never an expected value or the seed of an input. It answers with what it saw: the structure
and bytes of outputs, and raw times. The parent and the oracle judge them. :class:`Subject` loads and validates; its
base :class:`TimedCalls` times. Both are all that own candidates and baselines need;
:mod:`kgen.evaluator.strict.subject` adds the checks of foreign ones.

The harness binds its functions of torch to names here, before a candidate is loaded: a candidate that patches torch
changes only its own behaviour.
"""

import gc
import importlib
import importlib.util
import math
import os
import sys
import traceback
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any, Callable, Iterator, Mapping

import torch

from kgen.candidate import ENTRY, LAUNCH
from kgen.evaluator.candidates.build import Extension
from kgen.evaluator.candidates.calls import FILE_BYTES, TimedCalls
from kgen.evaluator.candidates.guards import Guard, beside, bitwise, earlier, guarded, mutated, overlaps
from kgen.evaluator.candidates.kernel_times import kernel_ms
from kgen.evaluator.candidates.state import Refused
from kgen.evaluator.correctness.distributions import mixed
from kgen.evaluator.correctness.reference import Run, construct, set_flags
from kgen.evaluator.runtime import driver, sandbox
from kgen.evaluator.runtime.arena import Arena, describe, is_on, map_tensors, tensors
from kgen.evaluator.runtime.channel import Channel
from kgen.evaluator.runtime.fences import Fences
from kgen.problems.problem import Problem, load
from kgen.protocol import COMPILER, GRAPH_BASELINE

_MESSAGE_CHARACTERS = 400
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc")  # in a RuntimeError's message
_FENCED_BYTES = 1 << 27  # bytes of outputs; calls with larger outputs have no fence behind their allocations
_CANDIDATE = "kgen_candidate"  # the module of a candidate's file
_COMPILE_MODES = {
    "compile": "default",
    "compile-max-autotune": "max-autotune-no-cudagraphs",
    GRAPH_BASELINE: "reduce-overhead",
}

_full = torch.full
_no_grad = torch.no_grad


class Subject(TimedCalls):
    """The module under evaluation, with everything that loading and validating it needs."""

    sees_launches = True  #: whether a file's function for launches is kgen's own

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.accuracy, self.flags = options["accuracy"], options["flags"]
        self.base: dict[str, torch.Tensor]  # the problem's weights, and what makes the module: from loading on
        self.constructor: Callable[[], Any]
        self.names: dict[str, Any] = {}  # of the candidate's file
        self.enters = False  # whether its whole forward may be one call of C, whose launches are not seen
        self.behind = ""  # memory that the runs of a validation wrote and must not
        self.second: Any = None  # the second run in validation, where the oracle's memory holds one at a time
        self.fences = Fences(
            self.device.partition(":")[0], self.runtime.capturing
        )  # behind what forward allocates in validation
        self.answers("load", "make", "compile", "run", "write_second", "draws", "audit", "kernels")

    def load(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Map the memory, and execute the file of the module, which may run compilers."""
        weights, constructor, outputs = fds
        arena = Arena.open(weights, request["state_bytes"], self.place)
        self.base = arena.read(request["state"], self.device)  # in the arena's memory, which stays
        self.output = Arena.open(outputs, request["output_bytes"], self.place, writable=True)
        with closing(Arena(constructor, writable=False)) as arena:
            init = arena.read(request["init"], self.device)
        self.modes, self.views = request["modes"], request["views"]
        if request["flush_bytes"]:  # before the candidate is loaded: it may replace the allocator
            self.flush_buffer = _full((request["flush_bytes"] // 4,), 1.0, device=self.device)
        self.generators = self.runtime.generators()  # those of a GPU exist once it has started
        if "problem" in request:
            self.constructor = load(Problem(**request["problem"])).model
            set_flags(self.accuracy, self.flags)  # the problem's file may have set others
        else:
            use_built(request["libraries"])
            self.constructor = _candidate(request["path"], init, request["dtype"])
            self.names = vars(sys.modules[_CANDIDATE]) if self.sees_launches else {}
        return {}

    def make(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Construct the module and give it the weights where names and shapes agree."""
        self.model = construct(self.constructor, self.device, request["construction"])
        if not isinstance(self.model, torch.nn.Module):
            raise Refused(f"ModelNew(...) is a {type(self.model).__name__}, not a torch.nn.Module")
        complete = self.state.match(self.model, self.base, request["ties"], frozenset(request["unsaved"]))
        self.call_model = self.model
        if request["baseline"] != "eager":
            self.call_model = torch.compile(self.model, mode=_COMPILE_MODES[request["baseline"]])
        if request["baseline"] == GRAPH_BASELINE:
            self.call_model = _with_own_outputs(self.call_model)
        return {"matched": self.state.matched, "complete": complete}

    def compile(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Fill the caches of torch's compiler with what the ``baseline`` compiles, after a rehearsal. Nothing of it
        runs on the device, so others may time meanwhile."""
        with _no_grad():
            for mode in self.modes:
                self.set_mode(mode)
                compile_only(self.model, _COMPILE_MODES[request["baseline"]], self.buffers)
        return {}

    def run(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Two forwards on the same inputs. Reports outputs, buffers, shared memory, and whether anything else changed.
        The second forward draws the same random numbers as the first; with ``go_on`` it draws the next ones."""
        with closing(Arena.open(fds[0], request["bytes"], self.place)) as arena:
            return self._run_twice(arena.read(request["inputs"], self.device), request)

    def _run_twice(self, pristine: list[Any], request: dict[str, Any]) -> dict[str, Any]:
        guards: list[Guard] = []
        self.behind = ""
        inputs = self._guarded_inputs(pristine, guards)
        self.state.use(request["change"])
        first, state = self._forward(inputs, request)
        if not is_on(first, self.device):
            return {"first": describe([first, state])[0]}
        reply: dict[str, Any] = {"mutated": mutated(inputs, pristine), "alias": self._alias(first, inputs)}
        reply |= self.write("first", [first, state], request["place"])
        if (
            not self.holds_outputs and reply["end"] <= self.output.size < 2 * reply["end"]
        ):  # one of large outputs at a time
            first, state = self.output.read(reply["first"], self.device)
        self.state.use(request["change"])
        self.enters = True
        second, later = self._forward(inputs, request, seeded=not request.get("go_on"))
        self.enters = False
        reply["mutated"] = beside(guards) or self.behind or reply["mutated"] or mutated(inputs, pristine)
        reply["alias"] = reply["alias"] or self._alias(second, inputs) or self._reused(first, second)
        same = bitwise([first, state], [second, later])
        if not same:
            self.second = [second, later]
            reply |= self.write("second", self.second, request["end"])
        return reply | {"repeatable": same}

    def write_second(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Write the second run's tensors over the first's."""
        return self.write("second", self.second, 0)

    def draws(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """One forward on each of some fresh inputs. A key mixes each fresh input from two sets. Writes the tensors with
        these ``numbers``."""
        chosen = slice(request["first"], request["first"] + request["count"])
        drawn: list[Any] = []
        with (
            closing(Arena.open(fds[0], request["bytes"], self.place)) as given,
            closing(Arena.open(fds[1], request["output_bytes"], self.place, writable=True)) as memory,
        ):
            sets = given.read(request["sets"], self.device)
            for place, (key, rng) in [*enumerate(zip(request["keys"], request["rngs"]))][chosen]:
                self.state.use(request["change"])
                every = tensors([*self._forward(mixed(sets, key), request | {"rng": rng})])
                found = [every[number] for number in request["numbers"] if number < len(every)]
                node, end = describe(found, place * request["step"])
                if end <= memory.size:
                    memory.write(found, node)
                drawn.append(node)
            self.wait()
        return {"drawn": drawn}

    def _guarded_inputs(self, pristine: list[Any], guards: list[Guard]) -> list[Any]:
        """Copies of the inputs between fences."""
        return map_tensors(pristine, lambda x: guarded(x, self.device, guards))

    def _forward(self, inputs: list[Any], request: dict[str, Any], *, seeded: bool = True) -> Run:
        self.mode = request["mode"]
        self.model.train(self.mode == "train")
        self.runtime.poison(request["sizes"])
        if seeded:
            self.seed(request["rng"])
        fenced = 4 * sum(map(math.prod, request["sizes"])) <= _FENCED_BYTES  # larger ones need the memory
        with _no_grad(), self._fenced() if fenced else nullcontext():
            output = self.call_model(*inputs)
        self.wait()
        self.behind = self.behind or ("" if self.fences.is_whole() else "memory behind an output or a workspace")
        return output, self.state.copied()

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

    def _alias(self, output: Any, inputs: list[Any]) -> str:
        output = self.fresh(output)
        if overlaps(output, tensors(inputs)):
            return "an input"
        return "a parameter or buffer" if overlaps(output, self.state.members()) else ""

    def _reused(self, first: Any, second: Any) -> str:
        """The first output, if the second uses its memory."""
        return earlier(self.fresh(second), self.fresh(first))

    def audit(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Whether a parameter changed."""
        changed = self.state.changed_parameter()
        return {"mutated": f"parameter {changed}" if changed else ""}

    def kernels(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The times of the device's functions in a call. The worker times nothing afterwards."""
        self.renew(request["key"], self.modes[0])
        return {"ms": kernel_ms(self.call_all, self.wait, self.runtime)}

    def rehearse(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        self.second = None
        return super().rehearse(request, fds)


def _with_own_outputs(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of a module that replays graphs of torch's compiler. The next replay overwrites the outputs. So the outputs
    are copied here; any caller that keeps an output must copy it."""

    def call(*inputs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return map_tensors(compiled(*inputs), torch.clone)

    return call


def compile_only(model: torch.nn.Module, mode: str, inputs: list[Any]) -> None:
    """Compile ``model`` for ``inputs`` in a ``mode`` of torch's compiler, up to the first break of its graph, and run
    nothing. The next ``torch.compile`` in this process finds the result in the compiler's caches; where that cannot be
    compiled, the next call says why."""

    def backend(graph: torch.fx.GraphModule, examples: list[Any]) -> Any:
        torch._inductor.compile(graph, examples, options=torch._inductor.list_mode_options(mode))
        raise _Compiled

    with suppress(Exception):
        torch.compile(model, backend=backend)(*inputs)
    torch.compiler.reset()


class _Compiled(Exception):
    """Ends a call once its graph is compiled."""


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
        name: str,
        cpp_sources: Any = "",
        cuda_sources: Any = "",
        extra_cflags: Any = (),
        extra_cuda_cflags: Any = (),
        **options: Any,
    ) -> Any:
        flags = tuple(extra_cflags or ()), tuple(extra_cuda_cflags or ())
        if options == {"is_python_module": False, "no_implicit_headers": True}:
            library = libraries.get(Extension(name, cpp_sources, cuda_sources or "", *flags).content)
            if library is not None:
                torch.ops.load_library(library)
                return library
        return build(
            name, cpp_sources, cuda_sources or None, extra_cflags=flags[0], extra_cuda_cflags=flags[1], **options
        )

    cpp_extension.load_inline = load_inline


def _failure(error: BaseException) -> dict[str, Any]:
    text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS]
    memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)
    )
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
