"""Trials: runs of a module on a user's inputs that leave everything as it was, and what they tell.

run ── results, whether anything was changed, times ──> agree? faster?
"""

import copy
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import torch
import torch.utils._pytree as pytree
from torch import nn

from kgen.devices.runtime import RUNTIMES, runtime
from kgen.optimized.calls import copied, is_ordinary, tensors_of
from kgen.optimized.twin import Facts, unwatch, watching
from kgen.protocol import MAX_FACTOR, RMS_FACTOR, Depth, Timing
from kgen.protocol.statistics import Interval, ratio_interval

_CALL = tuple[tuple[Any, ...], dict[str, Any]]
_DEPTH = 6  # of objects in objects that a result is compared in
_FLOOR = 8  # roundings of the dtype that every result may err by
_LEAST_ROUNDS, _MOST_ROUNDS = 9, 200
_DOUBLED_BYTES = 4 << 30  # of weights and inputs; a float64 forward of more is left out
#: Relative root mean square differences of two right results, where no float64 result tells: float32 may be TF32.
_FAR = {torch.float32: 4e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@contextmanager
def apart(module: nn.Module) -> Iterator[None]:
    """Runs of a twin in the block change no buffer, and draw no random number, for anybody else; without gradients."""
    tables = [vars(part)["_buffers"] for part in module.modules() if "_buffers" in vars(part)]
    held = [(table, dict(table)) for table in tables]
    made: dict[int, torch.Tensor] = {}
    for table, buffers in held:
        for name, x in buffers.items():
            if x is not None:
                table[name] = made.setdefault(id(x), x.detach().clone())
    devices = [number for entry in RUNTIMES.values() for number in entry.started()]
    try:
        with torch.random.fork_rng(devices), torch.no_grad():
            yield
    finally:
        for table, buffers in held:
            table.update(buffers)


def outcome(module: nn.Module, call: _CALL) -> Any:
    """The result of a twin for a call, which changes nothing for anybody else."""
    args, kwargs = copied(call) if is_ordinary([*call]) else call
    with apart(module):
        return module(*args, **kwargs)


@dataclass(frozen=True)
class Observed:
    """The result of a module's own forward. ``reason`` says why no recording of it can stand for it; empty if one
    can."""

    outcome: Any
    reason: str


def observe(module: nn.Module, call: _CALL, *, once: bool = False) -> Observed:
    """Run a twin's forward twice on copies of the arguments; ``once`` where another process has looked at it.

    PyTorch's own errors are raised as they are.
    """
    args, kwargs = call
    if not is_ordinary([args, kwargs]):
        return Observed(outcome(module, call), "its arguments are no plain tensors")
    facts, watch = Facts(module), watching(module)
    try:
        with apart(module):
            seed = torch.random.initial_seed() % (1 << 62)
            torch.manual_seed(seed)
            given = copied((args, kwargs))
            first = module(*given[0], **given[1])
            if once:
                return Observed(first, "")
            torch.manual_seed(seed + 1)
            again = copied((args, kwargs))
            second = module(*again[0], **again[1])
            if watch.version:
                return Observed(first, "its forward sets attributes")
            if reason := facts.changed():
                return Observed(first, f"while its forward runs, {reason}")
            if not _equal(given, copied((args, kwargs))):
                return Observed(first, "its forward writes into its inputs")
            if not _close(first, second):
                return Observed(first, "its results differ from call to call")
    finally:
        unwatch(module, watch)
    return Observed(first, "")


def agree(outcome: Any, found: Any, exact: Any = None) -> str:
    """The reason why a result cannot stand for the module's own; empty where it can.

    ``exact`` is the result in float64. A right result errs at most twice as much as the module's own, over a tensor,
    and four times at one place. Without ``exact`` only large differences are found: the evaluator has judged the file
    before.
    """
    mine, structure = pytree.tree_flatten(outcome)
    theirs, other = pytree.tree_flatten(found)
    if structure != other or len(mine) != len(theirs):
        return "its result has another structure"
    doubles = pytree.tree_leaves(exact) if exact is not None else [None] * len(mine)
    mine, theirs, doubles = _opened(mine), _opened(theirs), _opened(doubles)
    if len(mine) != len(theirs):
        return "its result has another structure"
    for x, y, z in zip(mine, theirs, doubles if len(doubles) == len(mine) else [None] * len(mine)):
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            if type(x) is not type(y) or not isinstance(x, (bool, int, float, str, type(None))) or x != y:
                return "its result has other numbers or objects"
        elif (x.shape, x.dtype, x.device) != (y.shape, y.dtype, y.device):
            return "its result has another shape, dtype or device"
        elif x.stride() != y.stride() and x.numel():
            return "its result has another layout"
        elif reason := _values_agree(x, y, z):
            return reason
    return ""


def doubled(module: nn.Module, call: _CALL) -> Any:
    """The result of a module in float64; ``None`` where its forward does not run there, or it is too large."""
    args, kwargs = call
    size = sum(x.numel() * 8 for x in [*module.parameters(), *module.buffers(), *tensors_of([args, kwargs])])
    if size > _DOUBLED_BYTES:
        return None
    try:
        with torch.no_grad(), torch.random.fork_rng([]):
            other = copy.deepcopy(module).double()
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, copied((args, kwargs))
            )
            return other(*args, **kwargs)
    except Exception:  # modules name dtypes, or hold what cannot be copied
        return None


def compared(original: Callable[[], Any], fast: Callable[[], Any], device: torch.device, seconds: float) -> Interval:
    """How much faster one call is than another, timed in turns, as a user's program has them."""
    wait = runtime(device).wait

    def timed(call: Callable[[], Any], count: int) -> float:
        wait()
        started = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return (time.perf_counter() - started) * 1e3 / count

    counts = []
    for call in (original, fast):
        timed(call, 2)
        counts.append(max(1, min(200, int(2.0 / max(timed(call, 1), 1e-3)))))
    blocks: tuple[list[float], list[float]] = ([], [])
    ends = time.perf_counter() + seconds
    while len(blocks[0]) < _LEAST_ROUNDS or (time.perf_counter() < ends and len(blocks[0]) < _MOST_ROUNDS):
        order = ((0, original), (1, fast)) if len(blocks[0]) % 2 else ((1, fast), (0, original))
        for at, call in order:
            blocks[at].append(timed(call, counts[at]))
    one, other = (
        Timing(name, Depth.FINAL, "here", tuple((x,) for x in found))
        for name, found in zip(("original", "fast"), blocks)
    )
    return ratio_interval(one, other)


def _opened(leaves: Sequence[Any], depth: int = 0) -> list[Any]:
    """Leaves, with what objects hold in the place of the objects, such as the caches of a language model."""
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, (torch.Tensor, bool, int, float, str, type(None))) or depth > _DEPTH:
            found.append(leaf)
        elif isinstance(leaf, (list, tuple)):
            found += _opened(leaf, depth + 1)
        elif isinstance(leaf, dict):
            found += _opened([*leaf.values()], depth + 1)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (type, nn.Module)):
            found += [type(leaf).__qualname__, *_opened([*vars(leaf).values()], depth + 1)]
        else:
            found.append(str(type(leaf)))
    return found


def _values_agree(x: torch.Tensor, y: torch.Tensor, z: Any) -> str:
    if not x.numel():
        return ""
    if not x.is_floating_point() and not x.is_complex():
        return "" if torch.equal(x, y) else "its result has other integers"
    a, b = (torch.view_as_real(v).double() if v.is_complex() else v.double() for v in (x, y))
    if not torch.equal(a.isfinite(), b.isfinite()):
        return "its result has other infinities"
    a, b = a.nan_to_num(0.0, 0.0, 0.0), b.nan_to_num(0.0, 0.0, 0.0)
    scale = float(a.square().mean().sqrt()) or 1.0
    rounding = torch.finfo(x.dtype).eps
    if isinstance(z, torch.Tensor) and z.shape == x.shape and z.is_floating_point():
        exact = z.double().nan_to_num(0.0, 0.0, 0.0)
        for error, factor in ((_rms, RMS_FACTOR), (_most, MAX_FACTOR)):
            allowed = factor * error(a - exact) + _FLOOR * rounding * (
                scale if error is _rms else max(float(exact.abs().max()), scale)
            )
            if error(b - exact) > allowed:
                return "its result errs more than PyTorch's"
        return ""
    far = _FAR.get(x.dtype, 1e-6)
    return "" if _rms(a - b) <= far * scale else "its result differs"


def _rms(x: torch.Tensor) -> float:
    return float(x.square().mean().sqrt())


def _most(x: torch.Tensor) -> float:
    return float(x.abs().max())


def _equal(a: Any, b: Any) -> bool:
    return all(
        torch.equal(x.nan_to_num() if x.is_floating_point() else x, y.nan_to_num() if y.is_floating_point() else y)
        for x, y in zip(tensors_of(a), tensors_of(b))
    )


def _close(a: Any, b: Any) -> bool:
    """Whether two runs of the same forward have the same results, but for the order of sums."""
    mine, theirs = pytree.tree_leaves(a), pytree.tree_leaves(b)
    pairs = [(x, y) for x, y in zip(mine, theirs) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)]
    if any(type(x) is not torch.Tensor or x.layout is not torch.strided for pair in pairs for x in pair):
        return False
    return len(mine) == len(theirs) and all(
        x.shape == y.shape and x.dtype == y.dtype and not _differs(x, y) for x, y in pairs
    )


def _differs(x: torch.Tensor, y: torch.Tensor) -> bool:
    if not x.is_floating_point():
        return not torch.equal(x, y)
    a, b = x.double().nan_to_num(0.0, 0.0, 0.0), y.double().nan_to_num(0.0, 0.0, 0.0)
    return _rms(a - b) > 64 * torch.finfo(x.dtype).eps * (_rms(a) or 1.0)
