"""Runs compute-sanitizer over every contraction kernel at small sizes: memcheck, racecheck, synccheck, initcheck.

    python benchmarks/sanitizer.py

The script renders a covering set of candidates: every variant, tile and kind of reduction. It builds them in parallel
and runs all of them in one process under each tool. Torch's caching allocator is off, so each tensor is one allocation.
Exit code 1: a tool found an error.
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
from typing import Iterator

from _record import Cell, record

from kgen.candidate import Candidate
from kgen.compiler.capture import capture
from kgen.errors import DeviceError
from kgen.evaluator.protocol import Accuracy
from kgen.hardware import probe
from kgen.problem import Problem, load
from kgen.tuning.design import Design
from kgen.tuning.search import Point

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_CLEAN = "ERROR SUMMARY: 0 errors"
_RACES_CLEAN = "RACECHECK SUMMARY: 0 hazards"

#: Mode, forward, __init__, the shape of x that the kernels are chosen for, and the rows that they run with. The sizes
#: are small and unaligned, and still have clusters, split-K, large tiles and shared tiles.
_PROBLEMS = {
    "linear": ("eval", "self.linear(x).relu()", "self.linear = nn.Linear(1030, 258)", (130, 1030), 130),
    "short": ("eval", "(x @ self.w).relu()", "self.w = nn.Parameter(torch.randn(330, 130))", (130, 330), 70),
    "narrow": ("eval", "self.linear(x)", "self.linear = nn.Linear(1100, 33)", (70, 1100), 70),
    "large": ("eval", "self.linear(x)", "self.linear = nn.Linear(330, 2050)", (2048, 330), 130),
    "batch": ("eval", "torch.bmm(x, x.mT)", "self.scale = 1.0", (3, 70, 1030), 3),
    "normalised": ("train", "self.norm(self.linear(x))", "self.linear, self.norm = nn.Linear(330, 2050), nn.BatchNorm1d(2050)",
                   (2048, 330), 150),
}
_TEXT = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.empty{shape}]
"""


def candidates() -> Iterator[tuple[str, Candidate]]:
    """The covering set of each contraction's space, with the problem's name."""
    hardware = probe("cuda")
    for name, (mode, forward, init, shape, _) in _PROBLEMS.items():
        text = _TEXT.format(forward=forward, init=init, shape=shape)
        problem = Problem(name, f"{name}.py", text, (), mode, mode)
        captured = capture(load(problem))
        for accuracy in (Accuracy.FP32, Accuracy.TF32):
            of = Design(problem, captured, hardware, accuracy)
            kernel, *others = of.options[0].kernels
            for params in of.choices[0].spaces[0].covering_set():
                yield name, of.candidate(Point(0, (kernel.index(params), *(0 for _ in others))))


def module(source: str) -> ModuleType:
    """The candidate's file, executed."""
    found = ModuleType("candidate")
    exec(compile(source, "candidate", "exec"), found.__dict__)
    return found


def run(folder: Path) -> None:
    """Run each file of a folder on finite values, with a NaN in x, and with a NaN in each weight. Builds nothing."""
    import torch
    from torch.utils import cpp_extension

    builds = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    cpp_extension.load_inline = lambda name, **_: str(builds / name / f"{name}.so")
    for file in sorted(folder.glob("*.py")):
        name = file.name.split("-")[0]
        mode, *_, shape, rows = _PROBLEMS[name]
        model = module(file.read_text()).ModelNew().cuda().train(mode == "train")
        x = torch.rand(rows, *shape[1:], device="cuda")
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
    """The number of errors that a tool found, and its output."""
    command = ["compute-sanitizer", "--tool", tool, sys.executable, __file__, "--run", str(folder)]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    text = done.stdout + done.stderr
    clean = done.returncode == 0 and (_CLEAN in text or _RACES_CLEAN in text)
    return (0 if clean else max(1, text.count("========= Error") + text.count("========= Invalid"))), text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="run the files of this folder; the tools start this script so")
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.run)
        return 0
    if shutil.which("compute-sanitizer") is None:
        raise DeviceError("compute-sanitizer is not on PATH: it comes with the CUDA toolkit")
    rows: list[dict[str, Cell]] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "files"
        folder.mkdir()
        os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(made) / "builds")
        sources = {c.source: (name, c) for name, c in candidates()}
        with ThreadPoolExecutor() as pool:  # all files are compiled at once
            list(pool.map(module, sources))
        for number, (name, candidate) in enumerate(sources.values()):
            (folder / f"{name}-{number:02}.py").write_text(candidate.source)
        with ThreadPoolExecutor(len(TOOLS)) as pool:
            for tool, (errors, text) in zip(TOOLS, pool.map(lambda tool: check(tool, folder), TOOLS)):
                print(text[-4000:] if errors else text[-200:], flush=True)
                ran = sum(f"{name}-{n:02}" in text for n, (name, _) in enumerate(sources.values()))
                rows.append({"tool": tool, "files": len(sources), "ran": ran, "errors": errors})
    notes = ("Files are the covering set of the contraction's space. Each runs on finite values, with a NaN in x, and with a "
             "NaN in each weight.")
    record("sanitizer", "compute-sanitizer over contractions", rows, notes)
    return 1 if any(row["errors"] or row["ran"] != row["files"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
