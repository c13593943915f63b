"""Tracing: a problem's forward as programs of ``torch.export``, with no contents in any tensor.

    get_inputs(), Model(...)    run on fake tensors, which have a shape and a dtype and no memory
    export                      one program at the problem's sizes, others with another first size of inputs

Where ``Model(...)`` or ``forward`` reads values that a fake tensor does not have, the model is made with real weights.
"""

from __future__ import annotations

import itertools
import linecache
import logging
import re
import sys
import traceback
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Iterable, Iterator

from kgen.compiler.capture import as_eager
from kgen.compiler.capture.lean import lean, operators_collected_once
from kgen.compiler.capture.parameters import argument_sources, signature
from kgen.errors import CaptureError, ProblemError

if TYPE_CHECKING:
    import torch

    from kgen.problems.problem import LoadedProblem

#: dtypes that the evaluator does not take; complex64, integers and booleans may stand beside the others.
_OTHER_FLOATING = {"float64", "complex32", "complex128"}

#: Entries of a module's ``__dict__`` that hold its parts.
MODULE_TABLES = {"_parameters", "_buffers", "_modules"}

#: Names of torch's errors for a program that depends on values, and not on shapes alone.
_DATA_DEPENDENT = {
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "GuardOnDataDependentSymNode",
    "PendingUnbackedSymbolNotFound",
    "UnsupportedFakeTensorException",
}

#: Why a forward with a derivative cannot be captured, and two words of torch's own message for it.
_DERIVATIVE, _OF_DERIVATIVES = "torch.export does not take the derivatives of torch.func", "functorch tensor"

#: torch's message for an output of a class that is no known container.
_UNKNOWN_CONTAINER = re.compile(r"Found <class '(?:[^']*\.)?([^'.]+)'> in output")

#: The list that exports add to, for :func:`notice_reads_of_training`.
_READS: ContextVar[list[str]] = ContextVar("reads of training")


@dataclass(frozen=True)
class Trace:
    """A forward as ``torch.export`` sees it at the problem's own sizes.

    ``sources`` are Python source that reads each leaf of the arguments from forward's parameters, in the order of the
    program's placeholders. ``lengths`` are Python source of the containers' lengths, with their values. ``signature``
    is the text of forward's parameters.
    """

    loaded: "LoadedProblem"
    device_type: str
    module: "torch.nn.Module"
    program: Any
    sources: tuple[str, ...]
    lengths: tuple[tuple[str, int], ...]
    signature: str
    _inputs: tuple[Any, ...] = field(repr=False)
    _fake: Any = field(repr=False)

    def resized(self) -> Iterator[tuple[int, int, Any]]:
        """Programs in which inputs of one first size have another, the likeliest batch first, with both sizes.

        The other size is more than twice the size. No tensor that forward is given has it: one might be broadcast by
        chance. Sizes at which the forward cannot be exported are left out.
        """
        import torch
        import torch.utils._pytree as pytree

        leaves, spec = pytree.tree_flatten(self._inputs)
        given = [*(x for x in leaves if isinstance(x, torch.Tensor)), *self.module.parameters(), *self.module.buffers()]
        taken = {size for x in given for size in x.shape}
        for chosen in _likely_batches(leaves):
            size = int(leaves[chosen[0]].shape[0])
            other = next(n for n in itertools.count(2 * size + 1, 2) if n not in taken)
            others = [_with_first_size(x, other) if at in chosen else x for at, x in enumerate(leaves)]
            try:
                yield size, other, _export(self.loaded, self.module, pytree.tree_unflatten(others, spec), self._fake)
            except CaptureError:
                continue


def trace(loaded: "LoadedProblem", mode: str, device_type: str = as_eager.TRACED_ON, *, real: bool = False) -> Trace:
    """Trace the problem's forward in ``train`` or ``eval`` mode; on ``real`` weights instead of fake ones.

    The program is made on the CPU; :func:`functional` moves it to the kind of device, where that matters.

    Raises :class:`CaptureError` where the forward cannot be exported, or holds float64, complex128 or sparse tensors.
    Its one line names the statement. Raises :class:`kgen.errors.ProblemError` where the problem's own functions raise.
    """
    import torch

    fake = _fake_mode()
    with _quiet():
        inputs = _fake_inputs(loaded, fake)
        module = loaded.model() if real else _fake_model(loaded, fake)
    if any(map(torch.nn.parameter.is_lazy, [*module.parameters(), *module.buffers()])):
        raise CaptureError(f"{loaded.problem.path}: Model holds lazy modules: name their sizes, as nn.Linear does")
    scripted = next((name for name, part in module.named_modules() if isinstance(part, torch.jit.ScriptModule)), None)
    if scripted is not None:
        raise CaptureError(
            f"{loaded.problem.path}: Model holds a scripted module, `{scripted}`: hold the module itself"
        )
    _check_tensors(loaded.problem.path, "Model", [*module.parameters(), *module.buffers()])
    module.train(mode == "train")
    _average_in_tensors(module)
    program = _export_once(loaded, module, inputs, fake)
    sources, lengths = argument_sources(module, inputs)
    return Trace(loaded, device_type, module, program, sources, lengths, signature(module), inputs, fake)


def _average_in_tensors(module: "torch.nn.Module") -> None:
    """Give batch norms without a momentum a forward that export can follow. Theirs makes a number of the counter's
    value."""
    import torch

    for part in module.modules():
        own = isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and not isinstance(part, torch.nn.SyncBatchNorm)
        if own and part.momentum is None and part.num_batches_tracked is not None:
            part.forward = partial(_batch_norm_of_all_batches, part)


def _batch_norm_of_all_batches(norm: Any, x: "torch.Tensor") -> "torch.Tensor":
    """Batch norm whose running statistics are means over all batches so far."""
    import torch

    if not norm.training:
        return type(norm).forward(norm, x)
    norm._check_input_dim(x)
    y = torch.nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)
    norm.num_batches_tracked.add_(1)
    share = 1.0 / norm.num_batches_tracked.to(norm.running_mean.dtype)
    own = x.to(norm.running_mean.dtype)
    dims = [d for d in range(x.dim()) if d != 1]
    norm.running_mean.lerp_(own.mean(dims), share)
    norm.running_var.lerp_(own.var(dims), share)
    return y


def functional(trace: Trace, program: Any) -> Any:
    """The program without writes in place and without regions of its own: each write makes a new value.

    Autocast acts on tensors of one kind of device. Its regions become casts as on the trace's.
    """
    try:
        with _quiet(), _autocast_of_any_device(), operators_collected_once():
            if _uses_autocast(program):
                _forget_dtypes(program)
                if trace.device_type != as_eager.TRACED_ON:
                    _move(program, trace.device_type, trace._fake)
            return program.run_decompositions({})
    except Exception as error:
        raise _failure(trace.loaded, error) from error


def _uses_autocast(program: Any) -> bool:
    """Whether the program has regions of autocast."""
    return any(
        getattr(n.target, "__name__", "") == "wrap_with_autocast" for graph in _graphs(program) for n in graph.nodes
    )


def _graphs(program: Any) -> list[Any]:
    """The graphs of a program and of its regions."""
    return [module.graph for module in program.graph_module.modules() if hasattr(module, "graph")]


def _forget_dtypes(program: Any) -> None:
    """Drop checks of dtypes: regions of autocast have not cast anything where they were recorded."""
    for graph in _graphs(program):
        for n in [n for n in graph.nodes if "_assert_tensor_metadata" in str(n.target)]:
            graph.erase_node(n)


def _move(program: Any, device_type: str, fake: Any) -> None:
    """Put fake tensors on another kind of device, which need not be there, in the place of all that the program
    names."""
    import torch
    from torch.fx.node import map_aggregate

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device(device_type)
        with fake:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device_type)

    for graph in _graphs(program):
        for n in graph.nodes:
            if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.Tensor):
                n.meta["val"] = moved(n.meta["val"])
            n.args, n.kwargs = (
                map_aggregate(of, lambda a: moved(a) if isinstance(a, torch.device) else a) for of in (n.args, n.kwargs)
            )
    # Autograd takes no device that is not there.
    program._state_dict = {
        name: torch.nn.Parameter(moved(x), False) if isinstance(x, torch.nn.Parameter) else moved(x)
        for name, x in program.state_dict.items()
    }


def failure(loaded: "LoadedProblem", reason: str, line: int | None = None) -> CaptureError:
    """The error of a forward that cannot be captured, as one line with the statement of that line of the problem's
    file."""
    path, statement = loaded.problem.path, ""
    if line is not None:
        statement = f" at `{linecache.getline(_filename(loaded), line).strip()}`"
        path = loaded.problem.place(line)
    return CaptureError(f"{path}: forward cannot be captured{statement}: {reason}")


def unknown_container(name: str) -> str:
    """The reason of a forward that returns another container than a graph can spell."""
    return f"it returns an object of class {name}: return a tuple, a list or a dict"


def line_of(loaded: "LoadedProblem", stack: str | None) -> int | None:
    """The last line of the problem's file in a stack as a program's node has it."""
    lines = re.findall(rf'File "{re.escape(_filename(loaded))}", line (\d+)', stack or "")
    return int(lines[-1]) if lines else None


def _filename(loaded: "LoadedProblem") -> str:
    """The file name under which the problem's text was compiled."""
    return f"<{loaded.problem.path}>"


def _fake_inputs(loaded: "LoadedProblem", fake: Any) -> tuple[Any, ...]:
    """The arguments of forward as fake tensors on the CPU. ``get_inputs()`` runs on real ones where it reads values."""
    import torch
    import torch.utils._pytree as pytree
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode(allow_non_fake_inputs=True):  # without symbols, so that reading a value raises
            found = loaded.inputs()
    except ProblemError:
        found = loaded.inputs()
    tensors = [x for x in pytree.tree_leaves(found) if isinstance(x, torch.Tensor)]
    _check_tensors(loaded.problem.path, "get_inputs()", tensors)
    with fake:
        return tuple(pytree.tree_map_only(torch.Tensor, _empty_like, found))


def _empty_like(tensor: "torch.Tensor") -> "torch.Tensor":
    """A fake tensor of the same sizes and strides on the CPU; to be called under a fake mode."""
    import torch

    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=as_eager.TRACED_ON)


def _fake_model(loaded: "LoadedProblem", fake: Any) -> "torch.nn.Module":
    """The model with fake weights on the CPU. It is constructed on ``meta``, where deep copies work too."""
    import torch

    with torch.device("meta"):
        model = loaded.model()
    try:
        with fake:
            _make_fake(model)
    except Exception as error:  # scripted and lazy modules hold their tensors in ways of their own
        raise _failure(loaded, error) from error
    return model


def _make_fake(model: "torch.nn.Module") -> None:
    """Put a fake tensor in the place of each tensor that the modules hold, the same one for the same tensor."""
    import torch
    import torch.utils._pytree as pytree

    known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # with the original, which keeps its id

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in known:
            empty = _empty_like(tensor)
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            known[id(tensor)] = (torch.nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty, tensor)
        return known[id(tensor)][0]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            tensors.update({name: fake(x) for name, x in tensors.items() if x is not None})
        for name, value in list(vars(module).items()):
            if name not in MODULE_TABLES and isinstance(value, (torch.Tensor, list, tuple, dict)):
                vars(module)[name] = pytree.tree_map_only(torch.Tensor, fake, value)


def _fake_mode() -> Any:
    """The mode of fake tensors that one trace makes its inputs, its weights and its programs in."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return as_eager.fake_mode(shape_env=ShapeEnv(tracked_fakes=[]), allow_non_fake_inputs=True, export=True)


def _check_tensors(path: str, where: str, tensors: Iterable["torch.Tensor"]) -> None:
    import torch

    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise CaptureError(f"{path}: {where} holds a sparse tensor: kgen takes dense ones")
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype in _OTHER_FLOATING:
            raise CaptureError(
                f"{path}: {where} holds {dtype}: kgen takes float32, bfloat16 and float16 (integers and complex64 too)"
            )


def _numbers(module: "torch.nn.Module") -> dict[tuple[str, str], Any]:
    """The numbers that modules hold as attributes, by the module's path and the attribute's name."""
    parts = ((prefix, key, value) for prefix, part in module.named_modules() for key, value in vars(part).items())
    return {(prefix, key): value for prefix, key, value in parts if isinstance(value, (int, float))}


def _export_once(loaded: "LoadedProblem", module: "torch.nn.Module", inputs: tuple[Any, ...], fake: Any) -> Any:
    """The program of the forward's first call.

    A tensor that forward computes with and replaces becomes a buffer of ``module``, so that the program writes its new
    value. Raises where the tensor stands in a container or changes its shape or dtype, and where forward computes with
    a number that it changes. A candidate would have the first value for ever.
    """
    before, after = _numbers(module), {}
    held, left = dict(held_tensors(module)), {}

    def note(*_: Any) -> None:
        after.update(_numbers(module))
        left.update(held_tensors(module))

    hook = module.register_forward_hook(note)
    try:
        program = _export(loaded, module, inputs, fake)
    finally:
        hook.remove()
    read = {id(x) for x in program.constants.values()}
    replaced = {path: left.get(path) for path, x in held.items() if id(x) in read and left.get(path) is not x}
    if replaced:
        for path, new in replaced.items():
            if not _hold_in_buffer(module, path, held[path], new):
                raise failure(loaded, f"it computes with `self.{path}`, a tensor that it replaces: hold it in a buffer")
        return _export_once(loaded, module, inputs, fake)
    changed = {at: value for at, value in after.items() if at in before and before[at] != value}
    if changed:  # torch's export has taken the changes back
        _set_numbers(module, changed)
        if str(_export(loaded, module, inputs, fake).graph) != str(program.graph):
            name = ".".join(filter(None, next(iter(changed))))
            raise failure(loaded, f"it computes with `self.{name}`, a number that it changes: hold it in a buffer")
        _set_numbers(module, before)
    return program


def _hold_in_buffer(module: "torch.nn.Module", path: str, old: "torch.Tensor", new: "torch.Tensor | None") -> bool:
    """Make a buffer of the attribute at ``path``; ``False`` where it is no attribute or ``new`` is of another type."""
    prefix, _, key = path.rpartition(".")
    part = module.get_submodule(prefix) if key.isidentifier() else None
    if part is None or new is None or (new.shape, new.dtype) != (old.shape, old.dtype):
        return False
    vars(part).pop(key)
    part.register_buffer(key, old, persistent=False)
    return True


def held_tensors(module: "torch.nn.Module") -> Iterator[tuple[str, "torch.Tensor"]]:
    """The tensors that modules hold beside parameters and buffers, by their paths: ``block.scales[0]``."""
    import torch
    import torch.utils._pytree as pytree

    for prefix, part in module.named_modules():
        for key, held in vars(part).items():
            if key not in MODULE_TABLES and isinstance(held, (torch.Tensor, list, tuple, dict)):
                for path, leaf in pytree.tree_flatten_with_path(held)[0]:
                    if isinstance(leaf, torch.Tensor):
                        yield ".".join([*([prefix] if prefix else []), key]) + "".join(map(str, path)), leaf


def _set_numbers(module: "torch.nn.Module", numbers: dict[tuple[str, str], Any]) -> None:
    for (prefix, key), value in numbers.items():
        setattr(module.get_submodule(prefix), key, value)


def _likely_batches(leaves: list[Any]) -> list[tuple[int, ...]]:
    """Sets of inputs whose first sizes may be the batch: those like the first input's, the first alone, the others."""
    import torch

    sizes = {at: x.shape[0] for at, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.dim()}
    alike: dict[int, list[int]] = {}
    for at, size in sizes.items():
        alike.setdefault(size, []).append(at)
    groups = [tuple(group) for group in alike.values()]
    return list(dict.fromkeys([*groups[:1], *(group[:1] for group in groups[:1]), *groups[1:]]))


def _with_first_size(tensor: "torch.Tensor", size: int) -> "torch.Tensor":
    return tensor.new_empty((size, *tensor.shape[1:]))


def _export(loaded: "LoadedProblem", module: "torch.nn.Module", inputs: tuple[Any, ...], fake: Any) -> Any:
    """The program of the forward without gradients, as it is judged: a region under ``no_grad`` is none of its own
    there.

    It is what eager PyTorch runs, where that can be exported; else what the module runs when it is exported.
    """
    try:
        with as_eager.paths():
            program = _exported(loaded, module, inputs, fake)
    except (Exception, SystemExit):
        try:
            program = _exported(loaded, module, inputs, fake)
        except (Exception, SystemExit) as error:
            raise _failure(loaded, error) from error
    nodes = (n for graph in _graphs(program) for n in graph.nodes)
    derived = next((n for n in nodes if getattr(n.target, "__name__", "") == "_unwrap_for_grad"), None)
    if derived is not None:  # the program has lost its inputs
        raise failure(loaded, _DERIVATIVE, line_of(loaded, derived.meta.get("stack_trace")))
    return program


def _exported(loaded: "LoadedProblem", module: "torch.nn.Module", inputs: tuple[Any, ...], fake: Any) -> Any:
    import torch
    from torch._guards import TracingContext, tracing

    with (
        torch.no_grad(), _quiet(), _recurrence_by_shapes(), _autocast_of_any_device(), _noticed(module),
        tracing(TracingContext(fake)), lean(_filename(loaded)),
    ):  # fmt: skip
        return torch.export.export(module, inputs, strict=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warnings and log lines: its errors say enough."""
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextmanager
def _autocast_of_any_device() -> Iterator[None]:
    """Let autocast act on fake tensors of devices that this machine lacks: PyTorch would disable it there."""
    import torch
    from torch.cuda.amp import common

    saved = common.amp_definitely_not_available, torch.cuda.is_bf16_supported
    common.amp_definitely_not_available, torch.cuda.is_bf16_supported = (lambda: False), (lambda *_, **__: True)
    try:
        yield
    finally:
        common.amp_definitely_not_available, torch.cuda.is_bf16_supported = saved


@contextmanager
def notice_reads_of_training() -> Iterator[list[str]]:
    """The classes of modules that read ``training`` in exports meanwhile, or may: those with a ``train()`` of their
    own."""
    reads: list[str] = []
    token = _READS.set(reads)
    try:
        yield reads
    finally:
        _READS.reset(token)


@contextmanager
def _noticed(model: "torch.nn.Module") -> Iterator[None]:
    """Note reads of ``training`` while a forward of ``model`` runs. torch's export reads that of modules that it
    makes."""
    import torch

    reads = _READS.get([])  # nobody may ask
    reads += [type(module).__name__ for module in model.modules() if type(module).train is not torch.nn.Module.train]

    def read(module: "torch.nn.Module") -> bool:
        if sys._getframe(1).f_globals.get("__name__") != "torch.fx.graph_module":
            reads.append(type(module).__name__)
        return bool(vars(module)["training"])

    kept = property(read, lambda module, value: vars(module).update(training=value))
    torch.nn.Module.training = kept  # type: ignore[assignment]
    try:
        yield
    finally:
        del torch.nn.Module.training


@contextmanager
def _recurrence_by_shapes() -> Iterator[None]:
    """Let recurrent operators make fake results at once: PyTorch's own way computes each step of the sequence."""
    import torch

    keys = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)
    operators = [getattr(torch.ops.aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")]
    saved = [dict(op.py_kernels) for op in operators]
    for op in operators:
        op.py_kernels.update(dict.fromkeys(keys, _recurrent))
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in zip(operators, saved):
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def _recurrent(input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
               bidirectional: bool, batch_first: bool) -> tuple[Any, ...]:  # fmt: skip
    """Results of a recurrent operator without contents: the output of each step, then the last states."""
    states = hx if isinstance(hx, (list, tuple)) else [hx]
    width = states[0].shape[2] * (2 if bidirectional else 1)
    return (input.new_empty((*input.shape[:2], width)), *(state.new_empty(state.shape) for state in states))


def _failure(loaded: "LoadedProblem", error: BaseException) -> CaptureError:
    """The error of an export as one line: the statement of the problem's file that raised it, and why."""
    chain = list(_chain(error))
    stack = [f for e in reversed(chain) for f in traceback.extract_tb(e.__traceback__)]
    lines = [f.lineno for f in stack if f.filename == _filename(loaded)]
    if any(type(e).__name__ in _DATA_DEPENDENT for e in chain):
        reason = "it depends on the values of a tensor"
    else:
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
        container = _UNKNOWN_CONTAINER.match(text)
        if container:
            return failure(loaded, unknown_container(container[1]))
        reason = _DERIVATIVE if _OF_DERIVATIVES in text else f"{type(error).__name__}: {text[:240]}"
    return failure(loaded, reason, lines[-1] if lines else None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it was raised from or while handling."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
