"""Times every allowed combination of one kernel's parameters on the GPU, beside a copy of as many bytes as it moves.

    python benchmarks/kernel_spaces.py PROBLEM [--mode MODE] [-D NAME=VALUE] [--plan TEXT] [--kernel N] [--most N]

The rendered kernels are compiled, several into one library, and launched on random tensors. Device events take the
times, with a cold cache and queued work that hides launches. With ``--warm``, the kernel runs once before each sample
instead.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Callable

import _gpu
import torch

from kgen.codegen.registry import template_for, templates
from kgen.codegen.render import compiler_flags, kernel_text, translation_unit
from kgen.codegen.template import Argument, Task
from kgen.compiler.capture.capture import capture
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.fusion.steps import FusionPlan
from kgen.devices.hardware import Hardware, gpu
from kgen.problems.problem import load, read_problem, resolve_mode

KERNELS_PER_LIBRARY = 8  # kernels
ROUNDS = 9  # samples of each kernel
_SLEEP_CYCLES = 200_000  # cycles; longer than a launch


def build(tasks: list[tuple[Task, dict]], hardware: Hardware, folder: Path) -> list[tuple[ctypes._CFuncPtr, tuple[Argument, ...]]]:
    """Compile all kernels, several into one library. Returns their launchers in order."""

    def compile_one(number: int) -> list:
        group = tasks[number : number + KERNELS_PER_LIBRARY]
        texts, arguments, symbols = [], [], []
        for task, params in group:
            text, rendering = kernel_text(task, params)
            texts.append(text)
            arguments.append(rendering.arguments)
            symbols += rendering.symbols
        source, library = folder / f"{number}.cu", folder / f"{number}.so"
        source.write_text(translation_unit(texts, symbols, "cuda"))
        flags = [f for f in compiler_flags(hardware, []) if not f.startswith("-Xptxas")]
        subprocess.run(["nvcc", "-w", "-shared", "-Xcompiler", "-fPIC", "-std=c++17", *flags, "-o", library, source], check=True)
        loaded = ctypes.CDLL(str(library))
        return [(getattr(loaded, task.kernel.name), a) for (task, _), a in zip(group, arguments)]

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [f for group in pool.map(compile_one, range(0, len(tasks), KERNELS_PER_LIBRARY)) for f in group]


def caller(plan: FusionPlan, function: ctypes._CFuncPtr, arguments: tuple[Argument, ...], size: int, tensors: dict) -> Callable[[], None]:
    """A function that launches one kernel on tensors of the plan's shapes. ``size`` counts rows, or columns if these vary."""
    given = []
    for a in arguments:
        name = f"out {a.tensor}" if a.role == "out" else a.tensor or a.role
        if name not in tensors:
            kind = plan.graph.type(a.tensor)
            tensors[name] = torch.rand(kind.shape, device="cuda").to(getattr(torch, kind.dtype))
        given.append(tensors[name])
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in given]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def call() -> None:
        error = function(*pointers, ctypes.c_longlong(size), stream)
        if error:
            raise RuntimeError(f"CUDA error {error}")

    return call


def launches(call: Callable[[], None]) -> bool:
    """Whether the device takes the kernel: teams of too many blocks do not run beside each other."""
    try:
        call()
    except RuntimeError:
        return False
    return True


def time_all(calls: list[Callable[[], None]], warm: bool) -> list[float]:
    """The median of each call in microseconds, from interleaved samples."""
    flush = torch.ones(64 << 20, device="cuda")
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, taken in zip(calls, samples):
            if warm:
                call()
            else:
                flush.add_(1.0)
            taken.append(_gpu.milliseconds(call, _SLEEP_CYCLES) * 1e3)
    return [median(taken) for taken in samples]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("--mode")
    parser.add_argument("--dtype", help="bfloat16 or float16")
    parser.add_argument("-D", dest="overrides", action="append", default=[])
    parser.add_argument("--plan", default="", help="text that the plan's name holds (default: the first plan)")
    parser.add_argument("--kernel", type=int, default=0)
    parser.add_argument("--most", type=int, default=10_000, help="combinations at most, at random")
    parser.add_argument("--show", type=int, default=12)
    parser.add_argument("--warm", action="store_true")
    arguments = parser.parse_args()
    overrides = dict(text.partition("=")[::2] for text in arguments.overrides)
    loaded = load(read_problem(arguments.problem, overrides, arguments.mode, arguments.dtype))
    with torch.device("meta"):
        loaded = resolve_mode(loaded, loaded.model())
    hardware = gpu("cuda")
    graph = capture(loaded).graphs[0][1]
    plan = next(p for p in plans(graph, tuple(templates("cuda").values())) if arguments.plan in p.name and p.kernels)
    kernel = plan.kernels[arguments.kernel]
    task = Task(plan, kernel, hardware)
    combinations = list(template_for(task).space(task).allowed())
    random.Random(0).shuffle(combinations)
    combinations = combinations[: arguments.most]
    program = plan.program(kernel)
    tasks = [(Task(plan, replace(kernel, name=f"{kernel.name}_{n}"), hardware), p) for n, p in enumerate(combinations)]
    with tempfile.TemporaryDirectory() as folder:
        built = build(tasks, hardware, Path(folder))
    tensors: dict[str, torch.Tensor] = {"workspace": torch.zeros(1 << 24, device="cuda")}
    size = program.rows if isinstance(program.col_size, int) else program.cols
    made = [(caller(plan, f, a, size, tensors), params) for (f, a), params in zip(built, combinations)]
    calls, combinations = zip(*(pair for pair in made if launches(pair[0])))
    moved = plan.bytes_moved(kernel)
    source = torch.rand(moved // 8, device="cuda")
    target = torch.empty_like(source)
    copy, *times = time_all([lambda: target.copy_(source), *calls], arguments.warm)
    print(f"{plan.name}: {kernel.name}, {len(times)} of {len(made)} combinations, {moved / 1e6:.1f} MB, copy {copy:.2f} us")
    ranked = sorted(zip(times, combinations), key=lambda pair: pair[0])
    for us, params in [*ranked[: arguments.show], ranked[len(ranked) // 2], ranked[-1]]:
        print(f"{us:9.2f} us  {us / copy:5.2f} x copy  {moved / us / 1e3:7.0f} GB/s  {params}")
    names = list(combinations[0])
    for name in names:
        best: dict = {}
        for us, params in ranked:
            best.setdefault(params[name], us)
        print(f"    {name}: " + ", ".join(f"{value} {us:.2f}" for value, us in sorted(best.items(), key=lambda x: x[1])))


if __name__ == "__main__":
    main()
