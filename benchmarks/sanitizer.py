"""Runs compute-sanitizer over every schedule at small sizes: memcheck, racecheck, synccheck, initcheck.

    python benchmarks/sanitizer.py [--only SCHEDULE ...] [--shares 4] [--most N]

The script renders a covering set of candidates for each problem: every value of every parameter of every kernel. It builds
them in parallel and runs each share of them in one process under each tool. Torch's caching allocator is off, so each
tensor is one allocation. Exit code 1: a tool found an error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Iterator, NamedTuple, Sequence

from _record import Cell, record

from kgen.candidate import Candidate
from kgen.codegen.registry import templates
from kgen.compiler.capture.capture import capture
from kgen.devices.hardware import Hardware, gpu
from kgen.errors import DeviceError, ProblemError
from kgen.problems.problem import converted, load, read_problem
from kgen.protocol import Accuracy
from kgen.tuning.design import Design
from kgen.tuning.search import Point

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_PRODUCTS = ("contraction", "implicit_gemm", "recurrence")  # schedules whose kernels differ between the classes of accuracy
_CLEAN = "ERROR SUMMARY: 0 errors"
_RACES_CLEAN = "RACECHECK SUMMARY: 0 hazards"


class _Case(NamedTuple):
    """A small problem: the schedule that it is for, and what its file has.

    The kernels are chosen for an ``x`` of ``shape``, and run with ``rows`` in its first dimension.
    """

    schedule: str
    mode: str
    forward: str
    init: str
    shape: tuple[int, ...]
    rows: int
    dtype: str | None = None
    tools: tuple[str, ...] = TOOLS


_WRITES_UNSEEN = TOOLS[:3]  # initcheck misses what cuBLAS's products of bfloat16 write, and the steps read it
#: The sizes are small and unaligned, and still have clusters, teams, split-K, large tiles and shared tiles.
PROBLEMS = {
    "linear": _Case("contraction", "eval", "self.linear(x).relu()", "self.linear = nn.Linear(1030, 258)", (130, 1030), 130),
    "short": _Case("contraction", "eval", "(x @ self.w).relu()", "self.w = nn.Parameter(torch.randn(330, 130))", (130, 330), 70),
    "narrow": _Case("contraction", "eval", "self.linear(x)", "self.linear = nn.Linear(1100, 33)", (70, 1100), 70),
    "large": _Case("contraction", "eval", "self.linear(x)", "self.linear = nn.Linear(330, 2050)", (2048, 330), 130),
    "batch": _Case("contraction", "eval", "torch.bmm(x, x.mT)", "", (3, 70, 1030), 3),
    "triangle": _Case("contraction", "eval", "torch.triu(x @ self.w)", "self.w = nn.Parameter(torch.randn(330, 130))", (130, 330), 130),
    "long_k": _Case("contraction", "eval", "x @ self.w.t()", "self.w = nn.Parameter(torch.randn(70, 70000))", (70, 70000), 70),
    "long_columns": _Case("contraction", "eval", "x.t() @ x", "", (40000, 70), 40000),
    "slices": _Case("contraction", "eval", "x @ x.view(16400, 164)", "", (164, 16400), 164),
    "short_sums": _Case("contraction", "eval", "x @ x.view(33, 2600)", "", (2600, 33), 2600),
    "normalised": _Case("contraction", "train", "self.norm(self.linear(x))", "self.linear, self.norm = nn.Linear(330, 2050), nn.BatchNorm1d(2050)",
                        (2048, 330), 150),
    "convolution": _Case("implicit_gemm", "eval", "self.conv(x).relu()", "self.conv = nn.Conv2d(32, 72, 3, padding=1)", (4, 32, 14, 15), 3),
    "strided": _Case("implicit_gemm", "eval", "self.conv(x)", "self.conv = nn.Conv2d(24, 40, 3, stride=2, groups=2)", (4, 24, 17, 19), 3),
    "transposed": _Case("implicit_gemm", "eval", "self.conv(x)", "self.conv = nn.ConvTranspose1d(32, 40, 3, stride=2)", (4, 32, 65), 3),
    "maps": _Case("pointwise", "eval", "torch.sigmoid(x) * self.s + 1", "self.s = nn.Parameter(torch.randn(1030))", (130, 1030), 70),
    "turned": _Case("transpose", "eval", "x.mT.exp().contiguous()", "", (3, 70, 131), 3),
    "heads": _Case("batched_product", "eval", "torch.einsum('blhn,bshn->bhls', x, x[:, :45]) + 1", "", (3, 77, 2, 20), 2),
    "pairs": _Case("small_product", "eval", "torch.bmm(x.exp(), x.mT)[:, self.at]", "self.register_buffer('at', torch.arange(0, 19, 2))", (70, 19, 36), 67),
    "counts": _Case("row_scattering", "eval", "self.z.expand(x.shape[0], 5).scatter_add(1, (x * 2).long().clamp(0, 4), x)",
                    "self.z = nn.Parameter(torch.randn(5))", (130, 36), 70),
    "rows": _Case("inner_reduction", "eval", "torch.softmax(x, 1)", "", (300, 1032), 70),
    "long_rows": _Case("inner_reduction", "eval", "torch.softmax(x, 1)", "", (8, 60000), 5),
    "long_norm": _Case("inner_reduction", "eval", "x / x.abs().mean(1, keepdim=True)", "", (8, 60000), 5),
    "sum_of_all": _Case("inner_reduction", "eval", "((x - 1) ** 2).mean()", "", (70, 1030), 70),
    "channels": _Case("inner_reduction", "eval", "torch.softmax(x, 1)", "", (3, 70, 33, 8), 3),
    "places": _Case("inner_reduction", "eval", "x.argmax(1)", "", (3, 70, 33, 8), 3),
    "images": _Case("inner_reduction", "train", "self.norm(x).relu()", "self.norm = nn.BatchNorm2d(8)", (16, 8, 33, 36), 5),
    "groups": _Case("inner_reduction", "eval", "self.norm(x)", "self.norm = nn.GroupNorm(2, 8)", (4, 8, 33, 36), 3),
    "moments": _Case("outer_reduction", "train", "self.norm(x)", "self.norm = nn.BatchNorm1d(330)", (2048, 330), 150),
    "pooled": _Case("window", "eval", "F.max_pool2d(x, 3, 2, 1)", "", (3, 8, 33, 36), 3),
    "depthwise": _Case("window", "eval", "self.conv(x)", "self.conv = nn.Conv2d(8, 8, (3, 5), groups=8)", (3, 8, 33, 36), 3),
    "running": _Case("scan", "eval", "torch.cumsum(x, 1)", "", (70, 1032), 70),
    "long_running": _Case("scan", "eval", "torch.cumsum(x, 1)", "", (2, 100000), 2),
    "running_outside": _Case("scan", "eval", "torch.cumsum(x, 1)", "", (3, 70, 33), 3),
    "steps": _Case("recurrence", "eval", "self.gru(x)[0]", "self.gru = nn.GRU(24, 136, bidirectional=True, batch_first=True)", (35, 6, 24), 19),
    "wave": _Case("recurrence", "eval", "torch.cat(self.lstm(x)[1], 2)", "self.lstm = nn.LSTM(24, 104, 3)", (7, 19, 24), 5),
    "turns": _Case("recurrence", "eval", "self.lstm(x)[0]", "self.lstm = nn.LSTM(24, 1024)", (4, 64, 24), 4),
    "attention": _Case("tiled_attention", "eval", "F.scaled_dot_product_attention(x, x, x, is_causal=True)", "", (2, 3, 150, 40), 2),
    "attention_masked": _Case("tiled_attention", "eval", "F.scaled_dot_product_attention(x, x, x, self.m)", "self.m = nn.Parameter(torch.randn(70, 70))",
                              (2, 3, 70, 40), 2),
    "attention_wide": _Case("wide_attention", "eval", "F.scaled_dot_product_attention(x[:, :, :200], x, x)", "", (2, 2, 300, 152), 2),
    # Products of half types take rows of whole 16 bytes: wgmma reads them along k, mma.sync along the columns, too.
    "half_linear": _Case("contraction", "eval", "self.linear(x).relu()", "self.linear = nn.Linear(1032, 264)", (136, 1032), 130, "bfloat16"),
    "half_product": _Case("contraction", "eval", "x @ self.w", "self.w = nn.Parameter(torch.randn(336, 136))", (136, 336), 70, "bfloat16"),
    "half_convolution": _Case("implicit_gemm", "eval", "self.conv(x)", "self.conv = nn.Conv2d(32, 72, 3, padding=1)", (4, 32, 14, 15), 3,
                              "bfloat16"),
    "half_maps": _Case("pointwise", "eval", "torch.sigmoid(x) * self.s + 1", "self.s = nn.Parameter(torch.randn(1032))", (130, 1032), 70,
                       "bfloat16"),
    "half_steps": _Case("recurrence", "eval", "self.gru(x)[0]", "self.gru = nn.GRU(24, 136, bidirectional=True, batch_first=True)", (35, 6, 24), 19,
                        "bfloat16", _WRITES_UNSEEN),
    "half_wave": _Case("recurrence", "eval", "torch.cat(self.lstm(x)[1], 2)", "self.lstm = nn.LSTM(24, 104, 3)", (7, 19, 24), 5, "bfloat16", _WRITES_UNSEEN),
    "half_attention": _Case("tiled_attention", "eval", "F.scaled_dot_product_attention(x, x, x, is_causal=True)", "", (2, 3, 150, 64), 2, "bfloat16"),
    "half_attention_masked": _Case("tiled_attention", "eval", "F.scaled_dot_product_attention(x, x, x, self.m)",
                                   "self.m = nn.Parameter(torch.randn(70, 70))", (2, 3, 70, 64), 2, "bfloat16"),
    "half_pooled": _Case("window", "eval", "F.max_pool2d(x, 3, 2, 1)", "", (3, 8, 33, 36), 3, "bfloat16"),
    "half_depthwise": _Case("window", "eval", "self.conv(x)", "self.conv = nn.Conv2d(8, 8, (3, 5), groups=8)", (3, 8, 33, 40), 3, "bfloat16"),
}

_TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.empty{shape}]
"""


def points(name: str, hardware: Hardware) -> Iterator[tuple[Design, Point]]:
    """The covering set of the kernels of the smallest plan with one of the problem's schedule, for each class of accuracy.

    Raises :class:`ProblemError` where no plan has one.
    """
    case = PROBLEMS[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.py"
        file.write_text(_TEXT.format(forward=case.forward, init=case.init, shape=case.shape))
        problem = read_problem(str(file), mode=case.mode, dtype=case.dtype)
    captured = capture(load(problem))
    for accuracy in (Accuracy.FP32, Accuracy.TF32) if case.schedule in _PRODUCTS else (Accuracy.FP32,):
        of = Design(problem, captured, hardware, accuracy)
        takes = (n for n, choice in enumerate(of.choices) if any(kernel.label.startswith(f"{case.schedule}[") for kernel in choice.kernels))
        plan = min(takes, key=lambda n: len(of.choices[n].kernels), default=None)
        if plan is None:
            raise ProblemError(f"{name}: no plan has a kernel of the schedule {case.schedule}")
        kernels, sets = of.options[plan].kernels, [space.covering_set() for space in of.choices[plan].spaces]
        for number in range(max(map(len, sets))):
            yield of, Point(plan, tuple(kernel.index(found[number % len(found)]) for kernel, found in zip(kernels, sets)))


def candidates(only: Sequence[str], hardware: Hardware, most: int | None = None) -> Iterator[tuple[str, Candidate]]:
    """The candidates of the problems of these schedules, or of all, with each problem's name: ``most`` of each, evenly."""
    for name, case in PROBLEMS.items():
        if not only or case.schedule in only:
            found = list(points(name, hardware))
            for of, point in found[:: -(-len(found) // most) if most else 1]:
                yield name, of.candidate(point)


def module(source: str) -> ModuleType:
    """The candidate's file, executed."""
    found = ModuleType("candidate")
    exec(compile(source, "candidate", "exec"), found.__dict__)
    return found


def run(folder: Path, tool: str) -> None:
    """Run each file of a folder that the tool checks. Builds nothing.

    It runs on finite values, with a NaN in x, and with a NaN in each weight.
    """
    import torch
    from torch.utils import cpp_extension

    builds = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    cpp_extension.load_inline = lambda name, **_: str(builds / name / f"{name}.so")
    for file in sorted(folder.glob("*.py")):
        name = file.name.split("-")[0]
        case = PROBLEMS[name]
        if tool not in case.tools:
            continue
        model = converted(module(file.read_text()).ModelNew().cuda(), case.dtype).train(case.mode == "train")
        x = torch.rand(case.rows, *case.shape[1:], device="cuda", dtype=getattr(torch, case.dtype or "float32"))
        with torch.no_grad():
            model(x)
            x[0, 0] = float("nan")
            model(x)
            for weight in model.parameters():
                weight.view(-1)[-1] = float("nan")
            model(x)
        torch.cuda.synchronize()
        print(file.stem, flush=True)


def check(tool: str, folder: Path) -> tuple[int, str]:
    """The number of errors that a tool found in the files of a folder, and its output."""
    command = ["compute-sanitizer", "--tool", tool, sys.executable, __file__, "--run", str(folder), "--tool", tool]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    text = done.stdout + done.stderr
    clean = done.returncode == 0 and (_CLEAN in text or _RACES_CLEAN in text)
    return (0 if clean else max(1, text.count("========= Error") + text.count("========= Invalid"))), text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="run the files of this folder; the tools start this script so")
    parser.add_argument("--tool", choices=TOOLS, default=TOOLS[0], help="with --run: the tool that runs this script")
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(templates("cuda")), help="the problems of these schedules alone")
    parser.add_argument("--shares", type=int, default=4, help="processes of each tool that run beside each other (default 4)")
    parser.add_argument("--most", type=int, help="files of each problem, evenly; else all")
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.run, arguments.tool)
        return 0
    if shutil.which("compute-sanitizer") is None:
        raise DeviceError("compute-sanitizer is not on PATH: it comes with the CUDA toolkit")
    rows: list[dict[str, Cell]] = []
    with tempfile.TemporaryDirectory() as made:
        os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(made) / "builds")
        sources = {c.source: (name, c) for name, c in candidates(arguments.only, gpu("cuda"), arguments.most)}
        with ThreadPoolExecutor() as pool:  # all files are compiled at once
            list(pool.map(module, sources))
        folders = [Path(made) / f"files{share}" for share in range(arguments.shares)]
        for number, (name, candidate) in enumerate(sources.values()):
            folder = folders[number % len(folders)]
            folder.mkdir(exist_ok=True)
            (folder / f"{name}-{number:03}.py").write_text(candidate.source)
        work = [(tool, folder) for tool in TOOLS for folder in folders if folder.exists()]
        with ThreadPoolExecutor(len(work)) as pool:
            found = list(zip(work, pool.map(lambda of: check(*of), work)))
        for tool in TOOLS:
            outputs = [(errors, text) for (of, _), (errors, text) in found if of == tool]
            for errors, text in outputs:
                print(text[-4000:] if errors else text[-200:], flush=True)
            ran = sum(f"{name}-{n:03}" in text for n, (name, _) in enumerate(sources.values()) for _, text in outputs)
            files = sum(tool in PROBLEMS[name].tools for name, _ in sources.values())
            rows.append({"tool": tool, "files": files, "ran": ran, "errors": sum(errors for errors, _ in outputs)})
    if not arguments.only:
        notes = ("Files are the covering set of the kernels of one problem or more for each schedule. Each runs on finite values, "
                 "with a NaN in x, and with a NaN in each weight.")
        notes += f" Of each problem, {arguments.most} files of the set at most." if arguments.most else ""
        record("sanitizer", "compute-sanitizer over every schedule", rows, notes)
    return 1 if any(row["errors"] or row["ran"] != row["files"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
