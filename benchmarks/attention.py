"""kgen's attention on a GPU beside PyTorch's: its default, torch.compile, and each backend of SDPA.

    python benchmarks/attention.py [--dtype bfloat16] [--only TEXT] [--name NAME] [--combinations 12] [--build-only]

Each case is one call of scaled_dot_product_attention. kgen's subjects are combinations of its kernel with the most keys
in a tile, for all others of its parameters in turn. Where its plan is several kernels, the subjects are combinations far
apart. Subjects of one case are timed interleaved, by device events with a cold cache
and queued work that hides launches. The error is that of the first matrices to float64.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

import torch
from _gpu import interleaved
from _record import Cell, record
from torch.nn.attention import SDPBackend, sdpa_kernel

from kgen.candidate import Params
from kgen.compiler.capture.capture import capture
from kgen.devices.hardware import Hardware, gpu
from kgen.problems.problem import load, read_problem
from kgen.protocol import Accuracy
from kgen.tuning.design import Design
from kgen.tuning.search import Choice, Option, Point

TOKENS = 16384  # rows of queries of one head, over all of the batch
WIDTH = 2048  # elements of all heads of a row
_BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}

_TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v{extra}):
        return F.scaled_dot_product_attention(q, k, v{passed})


def get_inputs():
    q, k, v = (torch.randn({batch}, {heads}, {length}, {width}) for _ in range(3))
    return [q, k, v{made}]
"""


@dataclass(frozen=True)
class Case:
    """One call: heads of ``width``, sequences of ``length``, and what hides scores: nothing, a diagonal, or an additive mask."""

    width: int
    length: int
    hides: str
    dtype: str

    @property
    def title(self) -> str:
        return f"{self.width} x {self.length}" + (f", {self.hides}" if self.hides else "")

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return max(1, TOKENS // self.length), max(1, WIDTH // self.width), self.length, self.width

    @property
    def operations(self) -> float:
        batch, heads, length, width = self.sizes
        return 4.0 * batch * heads * length * length * width / (2 if self.hides == "causal" else 1)

    @property
    def text(self) -> str:
        batch, heads, length, width = self.sizes
        extra, passed, made = {
            "": ("", "", ""), "causal": ("", ", is_causal=True", ""),
            "mask": (", mask", ", mask", f", torch.randn(1, 1, {length}, {length})"),
        }[self.hides]  # fmt: skip
        return _TEXT.format(extra=extra, passed=passed, made=made, batch=batch, heads=heads, length=length, width=width)

    def inputs(self) -> list[torch.Tensor]:
        """On the GPU: queries, keys, values of unit variance, and the mask."""
        torch.manual_seed(0)
        like = {"device": "cuda", "dtype": getattr(torch, self.dtype)}
        found = [torch.randn(self.sizes, **like) for _ in range(3)]
        return found + ([torch.randn(1, 1, self.length, self.length, **like)] if self.hides == "mask" else [])

    def library(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=self.hides == "causal")


FLOAT32 = tuple(
    Case(width, length, hides, "float32") for width in (64, 128, 1024) for length in (512, 2048, 8192) for hides in ("", "causal", "mask")
)
FLOAT32 += (Case(256, 512, "", "float32"),)
HALF = tuple(
    Case(width, length, hides, dtype)
    for dtype in ("bfloat16",)
    for width, lengths, several in (
        (64, (256, 1024, 4096, 16384), ("", "causal")), (128, (256, 1024, 4096, 16384), ("", "causal")),
        (80, (1024, 4096), ("", "causal")), (96, (1024, 4096), ("", "causal")),
        (64, (1024, 4096), ("mask",)), (128, (1024, 4096), ("mask",)), (80, (1024,), ("mask",)),
    )
    for length in lengths
    for hides in several
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """One of kgen's kernels for a case: its file, and its parameters."""

    case: Case
    params: Params
    source: str

    @property
    def name(self) -> str:
        """The parameters; of several kernels, those that tell the first one's tiles."""
        first = {key.removeprefix("k0."): value for key, value in self.params.items() if key.startswith("k0.")}
        told = first.keys() - {"products"} if len(first) == len(self.params) else {"variant", "promotion_interval", "tile", "stages"}
        return " ".join(f"{key}={value}" for key, value in first.items() if key in told)

    @cached_property
    def module(self) -> ModuleType:
        """The file, built and executed."""
        found = ModuleType("candidate")
        exec(compile(self.source, "candidate", "exec"), found.__dict__)
        return found


def ways(case: Case, hardware: Hardware, most: int) -> list[Way]:
    """Combinations of the first plan of kgen's own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "attention.py")
        file.write_text(case.text)
        problem = read_problem(str(file), mode="eval", dtype=case.dtype)
    of = Design(problem, capture(load(problem)), hardware, Accuracy.PYTORCH)
    number = next(n for n, option in enumerate(of.options) if option.kernels and "library" not in option.name)
    points = (Point(number, choice) for choice in choices(of.options[number], most))
    return [Way(case, made.params, made.source) for made in map(of.candidate, points)]


def choices(option: Option, most: int) -> list[Choice]:
    """Of one kernel: the largest tiles of keys, for all other parameters in turn. Of several: combinations far apart, side by side."""
    if len(option.kernels) > 1:
        assert option.plainest is not None, "a plan of kgen's own has a point"
        orders = [sorted(range(len(kernel)), key=kernel.spread.__getitem__) for kernel in option.kernels]
        found = []
        for turn in range(most):
            choice = option.plainest
            for kernel, order in enumerate(orders):
                choice = option.changed(choice, kernel, order[turn % len(order)])
            found.append(choice)
        return list(dict.fromkeys(found))
    (kernel,) = option.kernels
    order = sorted(range(len(kernel)), key=lambda at: (-int(kernel[at].get("keys", 0)), kernel[at]["stages"]))
    rounds: dict[object, list[int]] = {}
    for at in order:
        rounds.setdefault(tuple(kernel[at].get(name) for name in ("warpgroups", "blocks", "loads", "cluster")), []).append(at)
    return [(found[turn],) for turn in range(len(kernel)) for found in rounds.values() if turn < len(found)][:most]


def backends(case: Case, inputs: list[torch.Tensor]) -> dict[str, Callable[[], torch.Tensor]]:
    """The backends that take the case."""

    def call(backend: SDPBackend) -> torch.Tensor:
        with sdpa_kernel(backend):
            return case.library(inputs)

    found: dict[str, Callable[[], torch.Tensor]] = {}
    for name, backend in _BACKENDS.items():
        try:
            call(backend)
        except RuntimeError:
            continue  # the backend has no kernel of this dtype or mask
        found[name] = lambda backend=backend: call(backend)
    return found


def errors(case: Case, inputs: list[torch.Tensor], calls: dict[str, Callable[[], torch.Tensor]]) -> dict[str, float]:
    """The norm of each subject's difference to float64 over that of the result, of the first four heads."""
    exact = case.library([x[:1, :4].double() for x in inputs])
    return {name: ((call()[:1, :4].double() - exact).norm() / exact.norm()).item() for name, call in calls.items()}


def row_of(case: Case, found: list[Way]) -> dict[str, Cell]:
    """The case's row: the library's times, and the fastest of kgen's kernels."""
    inputs = case.inputs()
    library = backends(case, inputs)
    compiled = torch.compile(lambda *given: case.library(list(given)), mode="max-autotune-no-cudagraphs", dynamic=False)
    calls: dict[str, Callable[[], torch.Tensor]] = {"default": lambda: case.library(inputs), "compile": lambda: compiled(*inputs), **library}
    models = {way.name: way.module.ModelNew() for way in found}
    calls |= {name: (lambda model=model: model(*inputs)) for name, model in models.items()}
    times = interleaved(calls)
    torch.compiler.reset()
    best = min(models, key=times.__getitem__)
    backend = min(library, key=times.__getitem__)
    wrong = errors(case, inputs, {name: calls[name] for name in ("default", backend, best)})
    print(f"{case.title} {case.dtype}:", ", ".join(f"{name} {ms:.4f} ms" for name, ms in times.items()), flush=True)
    return {
        "heads x length": case.title,
        "dtype": case.dtype,
        "default ms": times["default"],
        "compile ms": times["compile"],
        **{f"{name} ms": times.get(name) for name in _BACKENDS},
        "kgen ms": times[best],
        "over default": times["default"] / times[best],
        "over compile": times["compile"] / times[best],
        "over best backend": times[backend] / times[best],
        "TFLOP/s": case.operations / times[best] / 1e9,
        "error": wrong[best],
        "error / default's": wrong[best] / wrong["default"],
        "params": best,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="the cases of this dtype alone")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases whose title has this text")
    parser.add_argument("--name", help="of the record (default attention, or attention_part without all cases)")
    parser.add_argument("--combinations", type=int, default=12, help="of kgen's kernel in each case, at most (default 12)")
    parser.add_argument("--build-only", action="store_true", help="fill the folder of builds, and time nothing")
    arguments = parser.parse_args()
    cases = [c for c in (*FLOAT32, *HALF) if arguments.only in c.title and arguments.dtype in (None, c.dtype)]
    hardware = gpu("cuda")
    found = {case: ways(case, hardware, arguments.combinations) for case in cases}
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:  # all files are compiled at once
        list(pool.map(lambda way: way.module, [way for several in found.values() for way in several]))
    if arguments.build_only:
        return
    rows: list[dict[str, Cell]] = []
    with torch.no_grad():
        for case in cases:
            rows.append(row_of(case, found[case]))
            torch.cuda.empty_cache()
    notes = (
        f"Medians with a cold cache. Batches have {TOKENS} rows, and rows have {WIDTH} elements of heads. `compile` is max-autotune. "
        "An empty cell: the backend has no kernel of the case. The error is the norm of the difference to float64 over the norm of the result."
    )
    partial = arguments.only or arguments.dtype
    record(arguments.name or ("attention_part" if partial else "attention"), "kgen's attention beside PyTorch's", rows, notes)


if __name__ == "__main__":
    main()
