"""Run a problem's CUDA candidates on the CPU and judge them as the evaluator does.

    python tests/templates/emulate.py PROBLEM [--arch sm_90] [--points N]

Sizes are halved until a forward is small. Exit code 1: a candidate is wrong; its plan, parameters and reason are listed.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

sys.path[:0] = [str(Path(__file__).parents[n]) for n in (2, 1, 0)]

from emulated import Device, EmulationError  # noqa: E402
from models import in_tf32  # noqa: E402

from kgen.candidate import Candidate  # noqa: E402
from kgen.codegen import body  # noqa: E402
from kgen.compiler.capture.capture import capture  # noqa: E402
from kgen.devices.hardware import for_arch  # noqa: E402
from kgen.errors import KgenError  # noqa: E402
from kgen.evaluator.correctness import cudnn, reference  # noqa: E402
from kgen.evaluator.correctness.operators import Eager  # noqa: E402
from kgen.evaluator.correctness.oracle import Case, Oracle  # noqa: E402
from kgen.evaluator.correctness.validate import explain  # noqa: E402
from kgen.evaluator.runtime.arena import leaves  # noqa: E402
from kgen.problems.problem import Problem, converted, load, read_problem  # noqa: E402
from kgen.protocol import Accuracy, CaseErrors  # noqa: E402
from kgen.tuning.design import Design  # noqa: E402
from kgen.tuning.search import Point  # noqa: E402
from kgen.tuning.search.points import KernelSpace  # noqa: E402

MOST_BLOCKS = 50  # that the emulated device runs beside each other
LEAST, LEAST_CHANNELS = 4, 8  # sizes that are halved no further; convolutions of fewer channels are not products
SECRET = 7  # of the oracle: the same inputs in every run
_TF32_MASK = -(1 << 13)  # bits of a float32 that TF32 keeps


@dataclass(frozen=True)
class Verdict:
    """The first test case in which a candidate is wrong, or that in which it uses most of its tolerance."""

    case: str
    ok: bool
    used: float  # shares of the tolerance
    reason: str


class Judge:
    """A problem's test cases on the CPU; convolutions of the reference round to TF32 where its class lets cuDNN do so."""

    def __init__(self, problem: Problem, accuracy: Accuracy) -> None:
        self._tf32 = accuracy in (Accuracy.PYTORCH, Accuracy.TF32)
        reference.set_flags(accuracy.value)
        self.oracle = Oracle(problem, "cpu", accuracy.value, SECRET, SECRET, shared=False, strict=False)
        self.oracle.accuracy = accuracy
        self.loaded = self.oracle.loaded

    def verdict(self, device: Device, candidate: Candidate, most_cases: int | None = None) -> Verdict:
        """What the test cases say about a candidate."""
        worst = Verdict("", True, 0.0, "")
        try:
            module = device.module(candidate)
        except EmulationError as error:
            return Verdict("build", False, 0.0, str(error))
        for name, mode in self.oracle.names()[:most_cases]:
            with _tf32_convolutions(self._tf32):
                case = self.oracle.case(name, mode, "drawn")
            if case.note:
                continue
            try:
                values = self._values(device, module, case)
            except (EmulationError, RuntimeError) as error:
                return Verdict(name, False, 0.0, f"{type(error).__name__}: {error}")
            for row in self.oracle.judge(case, values):
                found = Verdict(name, row["ok"], row["used"] or 0.0, f"{row['output']}: {explain(CaseErrors(case=name, **row))}")
                if not found.ok:
                    return found
                worst = max(worst, found, key=lambda v: v.used)
        return worst

    def _values(self, device: Device, module: ModuleType, case: Case) -> list[torch.Tensor]:
        """The tensors of the candidate's output, and its buffers."""
        torch.manual_seed(SECRET)
        dtype = self.loaded.problem.dtype
        model = converted(module.ModelNew(*self.loaded.init_inputs()), dtype).train(case.mode == "train")
        model.load_state_dict(self.oracle.state(case.distribution, "drawn"))
        torch.manual_seed(case.rng)
        output, named = device.run(model, case.inputs), set(model.state_dict())
        buffers = {name: buffer for name, buffer in model.named_buffers() if name in named}
        return [leaf for _, leaf in leaves([output, buffers]) if isinstance(leaf, torch.Tensor)]


@contextmanager
def _tf32_convolutions(enabled: bool) -> Iterator[None]:
    """The reference's convolutions as cuDNN runs them: their operands are rounded to TF32."""
    if not enabled:
        yield
        return

    class Tf32(Eager):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in cudnn.OPERATORS and args[0].dtype == torch.float32:
                args = [*map(_rounded_to_tf32, args[:2]), *args[2:]]
            return func(*args, **(kwargs or {}))

    eager, rounding = reference.Reference.eager, reference._Rounding

    def in_tf32(self: Any, *args: Any) -> Any:
        with Tf32():
            return eager(self, *args)

    with mock.patch.object(reference.Reference, "eager", in_tf32), mock.patch.object(
            reference, "_Rounding", lambda noise, dtype, tf32=(), **more: rounding(noise, dtype, tf32=[True] * 999, **more)):
        yield


def _rounded_to_tf32(x: torch.Tensor) -> torch.Tensor:
    finite = torch.isfinite(x)
    return torch.where(finite, ((x.view(torch.int32) + (1 << 12)) & _TF32_MASK).view(torch.float32), x)


def covering(space: KernelSpace, most: int) -> list[int]:
    """Points of a kernel, each with as many values of parameters as may be that those before it lack; then others, evenly."""
    fits = [n for n in range(len(space)) if space[n].get("merge") != "team" or int(space[n]["blocks"]) <= MOST_BLOCKS]
    values = {n: {(space[n].get("variant"), *item) for item in space[n].items()} for n in fits}
    missing, found = set[Any]().union(*values.values()), list[int]()
    while missing and len(found) < most:
        found.append(max(fits, key=lambda n: len(values[n] & missing)))
        missing -= values[found[-1]]
    rest = [n for n in fits if n not in found]
    return [*found, *rest[:: max(1, len(rest) // max(1, most - len(found)))]][:most]


def small(problem: Problem, given: Collection[str], most_flops: float, most_elements: float, odd: bool = False) -> Problem:
    """The problem with its largest sizes halved until a forward is small, to odd sizes if ``odd``. Those of ``given`` stay."""
    smaller: Problem | None = problem
    while smaller:
        problem = smaller
        size = _size(problem)
        if size and size[0] <= most_flops and size[1] <= most_elements:
            break
        smaller = _smaller(problem, given, odd)
    return problem


def _smaller(problem: Problem, given: Collection[str], odd: bool) -> Problem | None:
    """The problem with its largest size halved; with two, where both must be alike. ``None`` where no such problem runs."""
    sizes = {name: value for name, value in _integers(problem.source).items() if name not in given}
    halves = {name: sorted({half - 1 | 1, half} if odd else {half}) for name, half in ((n, value // 2) for n, value in sizes.items())}
    names = sorted((name for name in sizes if halves[name][0] >= (LEAST_CHANNELS if "channels" in name else LEAST)), key=sizes.__getitem__, reverse=True)
    for some in (*((name,) for name in names), *itertools.combinations(names, 2)):
        for which in (0, -1):
            source = problem.source
            for name in some:
                source = _with_size(source, name, halves[name][which])
            tried = replace(problem, source=source)
            if _size(tried):
                return tried
    return None


def _places(source: str) -> Iterator[tuple[str, ast.expr]]:
    """The module's values that are integers or in tuples, with their names: `width`, `height, width`, `input_shape 0`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            names = ", ".join(map(ast.unparse, node.targets))
            is_row = isinstance(node.value, (ast.Tuple, ast.List))
            yield from ((f"{names} {n}", value) for n, value in enumerate(node.value.elts)) if is_row else [(names, node.value)]


def _integers(source: str) -> dict[str, int]:
    """The module's integers, those that are computed from numbers too."""
    found = {}
    for name, node in _places(source):
        with suppress(Exception):
            value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
            if type(value) is int:
                found[name] = value
    return found


def _with_size(source: str, name: str, size: int) -> str:
    """The source with another integer in one place."""
    node = dict(_places(source))[name]
    lines = source.splitlines(keepends=True)
    begin, end = (sum(map(len, lines[: line - 1])) + column for line, column in
                  ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)))
    return f"{source[:begin]}{size}{source[end:]}"


def _size(problem: Problem) -> tuple[float, float] | None:
    """Floating-point operations and elements of a forward; ``None`` where it does not run."""
    try:
        loaded = load(problem)
        with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
            model, inputs = loaded.model(), loaded.inputs()
            output = model(*inputs)
        held = [*model.parameters(), *(x for _, x in leaves([inputs, output]) if isinstance(x, torch.Tensor))]
        return float(counter.get_total_flops()), float(sum(x.numel() for x in held))
    except Exception:
        return None


def points(design: Design, plans: int, most: int) -> Iterator[tuple[int, Point]]:
    """Points of the first plans that have a kernel, ``most`` of each."""
    own = [n for n, option in enumerate(design.options) if option.kernels]
    for n in own[:plans]:
        chosen = [covering(kernel, most) for kernel in design.options[n].kernels]
        for i in range(max(map(len, chosen))):
            yield n, Point(n, tuple(of[i % len(of)] for of in chosen))


@mock.patch.object(body, "FEWEST_PARTS", sys.maxsize)  # each temporary ends at a page that no one may touch
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("-D", dest="sizes", action="append", default=[], metavar="NAME=VALUE", help="a size that is not halved")
    parser.add_argument("--batch", metavar="NAME=N", help="candidates are made for the whole problem, and run on a batch of N")
    parser.add_argument("--odd", action="store_true", help="halve to odd sizes, where the problem runs with them")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--l2", type=int, help="bytes of the level-2 cache that candidates are made for")
    parser.add_argument("--accuracy", type=Accuracy, default=Accuracy.PYTORCH)
    parser.add_argument("--mode")
    parser.add_argument("--dtype")
    parser.add_argument("--plans", type=int, default=3, help="the first plans that have a kernel")
    parser.add_argument("--points", type=int, default=12, help="of each plan: each value of each parameter first")
    parser.add_argument("--cases", type=int, help="the first test cases alone")
    parser.add_argument("--all", action="store_true", help="list right candidates, too, with the share of the tolerance that they use")
    parser.add_argument("--flops", type=float, default=2e8, help="of a forward, at most")
    parser.add_argument("--elements", type=float, default=1e6, help="of tensors, at most")
    parser.add_argument("--builds", type=Path, default=Path(tempfile.gettempdir(), "kgen-emulated"))
    options = parser.parse_args(arguments)
    options.builds.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    given = dict(text.split("=", 1) for text in options.sizes)
    try:
        whole = read_problem(options.problem, given, options.mode, options.dtype)
        if options.batch:
            name, size = options.batch.split("=")
            problem = replace(whole, source=_with_size(whole.source, name, int(size)))
        else:
            problem = whole = small(whole, given, options.flops, options.elements, options.odd)
        judge = Judge(problem, options.accuracy)
        loaded = load(replace(whole, mode=judge.loaded.problem.mode))
        hardware = for_arch(options.arch)
        hardware = replace(hardware, l2_bytes=options.l2) if options.l2 else hardware
        design = Design(loaded.problem, in_tf32(capture(loaded)), hardware, options.accuracy)
    except (KgenError, NotImplementedError) as error:  # PyTorch's CPU lacks some operators in half precision
        print(error, file=sys.stderr)
        return 2
    print(problem.name, _integers(problem.source), flush=True)
    device, wrong, tried, started = Device(options.builds), 0, 0, time.monotonic()
    for n, point in points(design, options.plans, options.points):
        candidate = design.candidate(point)
        found = judge.verdict(device, candidate, options.cases)
        tried, wrong = tried + 1, wrong + (not found.ok)
        if options.all or not found.ok:
            print(f"{design.options[n].name} {dict(candidate.params)}\n    {found.case}: {found.reason}", flush=True)
    print(f"{tried - wrong} of {tried} candidates right, {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
