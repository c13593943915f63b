"""kgen's contractions beside the library's: rates, errors, and the cost of splitting a weight and of a NaN.

    python benchmarks/products.py [--dtype bfloat16]

The subjects are bare linear layers of each size. They are the first combinations of each variant and the library, which
computes in float32 and TF32 or in the half type. Subjects of one size are timed interleaved, by device events with a
cold cache and queued work that hides launches.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from _gpu import interleaved
from _record import Cell, record

from kgen.candidate import Candidate, Params
from kgen.codegen import roofline
from kgen.codegen.roofline import Arithmetic, Basis, Work
from kgen.compiler.capture.capture import capture
from kgen.compiler.graph.dtypes import NARROW
from kgen.devices.hardware import Hardware, gpu
from kgen.problems.problem import load, read_problem
from kgen.protocol import Accuracy
from kgen.tuning.design import Design
from kgen.tuning.search import Point

#: Rows, k, columns: square ones, those of the reference problems, few rows, and unaligned ones.
SIZES = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (1024, 8192, 8192),
    (16384, 4096, 4096), (16, 8192, 8192), (64, 8192, 8192), (256, 8192, 8192), (1000, 1111, 999),
)  # fmt: skip
#: The same for half types: squares, and four others of full tiles.
HALF_SIZES = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384),
    (1024, 8192, 8192), (16384, 4096, 4096), (4096, 1024, 16384), (2048, 16384, 2048),
)  # fmt: skip
COMBINATIONS = 2  # of each variant in a half type; the first ones are predicted to be the fastest
MOST_EXACT = 1 << 26  # elements of the result that are computed in float64

_TEXT = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear({k}, {columns})

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.empty({rows}, {k})]
"""


@dataclass(frozen=True)
class Way:
    """A candidate for one size, with its parameters and its work."""

    size: tuple[int, int, int]
    params: Params
    candidate: Candidate
    work: Work
    name: str


def ways(size: tuple[int, int, int], hardware: Hardware, dtype: str) -> Iterator[Way]:
    """The first combinations of each variant and number of matmuls: one in float32, several in a half type."""
    rows, k, columns = size
    half = dtype in NARROW
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bare_linear.py")
        file.write_text(_TEXT.format(rows=rows, k=k, columns=columns))
        problem = read_problem(str(file), mode="eval", dtype=dtype)
    captured = capture(load(problem))
    ((_, graph),) = captured.graphs
    seen: Counter[tuple[object, object]] = Counter()
    for accuracy in (Accuracy.PYTORCH,) if half else (Accuracy.FP32, Accuracy.TF32):
        of = Design(problem, captured, hardware, accuracy)
        option = next(n for n, option in enumerate(of.options) if option.kernels)
        for number, params in enumerate(of.options[option].kernels[0]):
            key = params["variant"], params["products"]
            if seen[key] >= (COMBINATIONS if half else 1):
                continue
            seen[key] += 1
            name = f"{key[0]}, {seen[key]}" if half else f"{key[0]}, {Arithmetic('float16', int(key[1]))}"
            yield Way(size, params, of.candidate(Point(option, (number,))), Work.of(graph), name)


def module(source: str) -> ModuleType:
    """The candidate's file, built and executed."""
    found = ModuleType("candidate")
    exec(compile(source, "candidate", "exec"), found.__dict__)
    return found


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Sets the TF32 flag of matmuls, and restores it at the end."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def rows_of(size: tuple[int, int, int], found: list[tuple[Way, ModuleType]], hardware: Hardware, dtype: str) -> list[dict[str, Cell]]:
    """A row for each subject of this size."""
    torch.manual_seed(0)
    half, type_ = dtype in NARROW, getattr(torch, dtype)
    linear = torch.nn.Linear(size[1], size[2]).cuda().to(type_)
    x = torch.rand(size[0], size[1], device="cuda").to(type_)
    special = x.clone()
    special[0, 0] = float("nan")
    models = {way.name: (way, of.ModelNew().cuda().to(type_)) for way, of in found}
    for _, model in models.values():
        model.load_state_dict({f"linear.{name}": value for name, value in linear.state_dict().items()})

    def by_library(allowed: bool) -> torch.Tensor:
        with tf32(allowed):
            return linear(x)

    def prepare(model: torch.nn.Module) -> Callable[[], object]:
        return lambda: (model.refresh(), model._weights())

    library = {f"library, {dtype}": (False, "float16" if half else dtype)}
    library |= {} if half else {"library, tf32": (True, "tf32")}
    plain, *others = library
    calls: dict[str, Callable[[], torch.Tensor]] = {n: (lambda a=a: by_library(a)) for n, (a, _) in library.items()}
    calls |= {name: (lambda m=m: m(x)) for name, (_, m) in models.items()}
    errors = _errors(linear, x, calls)
    times = interleaved(calls)
    prepared = {} if half else interleaved({name: prepare(m) for name, (_, m) in models.items()})
    repaired = {} if half else interleaved({name: (lambda m=m: m(special)) for name, (_, m) in models.items()})
    basis = Basis(found[0][0].work, hardware.ceilings)
    rows = []
    for name in calls:
        way = models[name][0] if name in models else None
        arithmetic = Arithmetic("float16", int(way.params["products"])) if way else Arithmetic(library[name][1])
        reached = roofline.of(basis, times[name], arithmetic)
        rows.append({
            "rows x k -> columns": f"{size[0]} x {size[1]} -> {size[2]}",
            "way": name,
            "ms": times[name],
            f"over {dtype}": times[plain] / times[name],
            **{f"over {other.split()[-1]}": times[other] / times[name] for other in others},
            "TFLOP/s": reached.tflops,
            "of contractions": reached.of_contractions,
            "GB/s": reached.gbytes_per_second,
            "error": errors[name],
            f"error / {dtype}'s": errors[name] / errors[plain],
            **({} if half else {"prepare ms": prepared.get(name), "ms with a NaN": repaired.get(name)}),
            "params": ", ".join(f"{k}={v}" for k, v in way.params.items()) if way else "",
        })  # fmt: skip
    return rows


def _errors(linear: torch.nn.Linear, x: torch.Tensor, calls: dict[str, Callable[[], torch.Tensor]]) -> dict[str, float]:
    """The norm of each subject's difference to float64 over that of the result, from the first rows alone."""
    few = slice(0, MOST_EXACT // linear.out_features)
    exact = torch.nn.functional.linear(x[few].double(), linear.weight.double(), linear.bias.double())
    return {name: ((call()[few].double() - exact).norm() / exact.norm()).item() for name, call in calls.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=("float32", *NARROW))
    dtype = parser.parse_args().dtype
    sizes, name = (HALF_SIZES, f"products_{dtype}") if dtype in NARROW else (SIZES, "products")
    hardware = gpu("cuda")
    found = [way for size in sizes for way in ways(size, hardware, dtype)]
    with ThreadPoolExecutor() as pool:  # all files are compiled at once
        modules = list(pool.map(lambda way: module(way.candidate.source), found))
    rows: list[dict[str, Cell]] = []
    with torch.no_grad():
        for size in sizes:
            rows += rows_of(size, [(w, m) for w, m in zip(found, modules) if w.size == size], hardware, dtype)
            torch.cuda.empty_cache()
    notes = (
        "Medians with a cold cache. The share is that of the measured rate of matmuls; three matmuls in float16 count as "
        "three. The error is the norm of the difference to float64 over the norm of the output. "
    ) + (
        f"It is that of the first {MOST_EXACT} elements at most. The first {COMBINATIONS} combinations of each variant are timed."
        if dtype in NARROW
        else "Preparing splits the weight, once for each change of it. A row with a NaN is computed in float32."
    )
    record(name, "kgen's contractions beside the library's", rows, notes)


if __name__ == "__main__":
    main()
