"""Sweep the modules of ``tests/kinds_of_modules.py`` at GPU sizes, one short sweep each, and record one row for each.

    python benchmarks/kinds.py [--time 200] [--at-once 8] [--shard 1/2] [--only REGEX] [--again]
    python benchmarks/kinds.py --merge RECORD.json [RECORD.json ...]
    python benchmarks/kinds.py --compile-only [--jobs 2] [--only REGEX]

A row that is recorded already is skipped, so the same command goes on where the last one ended (``--again`` repeats). A
module that fails is a row, too. ``--shard I/N`` takes every N-th module, in a record of its own: one shard for each GPU.
``--merge`` puts the rows of other records into this one, each with its commit: those of shards, or of another machine.
A module whose time was up before its finals counts 1.0x. ``library calls`` are those of the plan that is predicted to be
best, but for views.

``--compile-only`` needs no GPU. It plans each module for ``sm_90`` and renders the first plan that has kernels, plainest.
It compiles the text with ``nvcc``, and prints each failure. The exit code is 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean

from _kinds import SIZES, problem
from _record import Cell, Conditions, conditions, record
from kernelbench import recorded, suite, sweep

NAME = "kinds"
TITLE = "Modules of the kinds that people write, at GPU sizes"
ARCH = "sm_90"
_COLUMNS = ("verdict", "ms", "speedup", "low", "high", "eager ms", "compile ms", "error / PyTorch's", "right", "tried", "failed as",
            "seconds", "exit", "commit", "reason", "plan")  # fmt: skip


def stem(name: str) -> str:
    """The module's name as that of a file."""
    return name.replace(" ", "_")


def written(names: Sequence[str], folder: Path) -> dict[str, Path]:
    """The problem files of modules, by their names."""
    found = {name: folder / f"{stem(name)}.py" for name in names}
    for name, path in found.items():
        path.write_text(problem(name), encoding="utf-8")
    return found


def library_calls(path: Path) -> str:
    """The library calls of the best plan by prediction; the first line of the error where there is no plan."""
    from kgen.errors import KgenError
    from kgen.problems.problem import read_problem
    from kgen.tuning.plan import plan

    try:
        calls = Counter(name.removeprefix("aten.") for name in plan(read_problem(str(path)), ARCH).library_calls)
    except KgenError as error:
        return str(error).partition("\n")[0]
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in calls.items())


def compiled(path: Path) -> str:
    """Render the first plan that has kernels, and compile it: an empty text, or what failed."""
    from kgen.devices.hardware import for_arch
    from kgen.evaluator.candidates.build import read_extension
    from kgen.problems.problem import load, read_problem, resolve_mode, without_values
    from kgen.protocol import Accuracy
    from kgen.tuning.design import Design, captured
    from kgen.tuning.search.points import Point

    try:
        loaded = load(read_problem(str(path)))
        loaded = resolve_mode(loaded, without_values(loaded.model))
        design = Design(loaded.problem, captured(loaded, "cuda"), for_arch(ARCH), Accuracy.PYTORCH)
        first = next(n for n, option in enumerate(design.options) if option.kernels and option.plainest is not None)
        extension = read_extension(design.candidate(Point(first, design.options[first].plainest)).source)
    except Exception as error:  # a failing module costs itself alone
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    if extension is None:
        return "the text has no kernel"
    text = path.with_suffix(".cu")
    text.write_text(extension.cuda_source, encoding="utf-8")
    words = ["nvcc", "-cubin", "-std=c++17", *extension.cuda_flags, "-o", str(path.with_suffix(".cubin")), str(text)]
    done = subprocess.run(words, capture_output=True, text=True)
    return "" if done.returncode == 0 else next((line for line in done.stderr.splitlines() if "error" in line), f"nvcc: {done.returncode}")


def checked(path: Path) -> tuple[str, str]:
    """The failure of a module, and its library calls."""
    return compiled(path), library_calls(path)


def compile_all(files: dict[str, Path], jobs: int) -> int:
    """Print what fails of each module. Returns the number of failures."""
    failures = 0
    with get_context("spawn").Pool(jobs, maxtasksperchild=16) as pool:
        for name, (failed, calls) in zip(files, pool.imap(checked, files.values())):
            failures += bool(failed)
            print(f"{name}: {failed or 'compiles'}{f'; library calls: {calls}' if calls else ''}", flush=True)
    print(f"{len(files) - failures} of {len(files)} modules compile")
    return failures


def swept(files: dict[str, Path], options: argparse.Namespace, commit: str, seconds: float) -> Iterator[tuple[str, dict[str, Cell]]]:
    """The row of each module, as sweeps end. Where the process of all sweeps ends early, another one takes the rest."""
    names, until = {path.stem: name for name, path in files.items()}, time.monotonic() + seconds
    waiting = dict(names)
    while waiting and time.monotonic() < until:
        before, left = len(waiting), [files[name] for name in waiting.values()]
        found = suite(left, options, commit, until - time.monotonic()) if before > 1 else (sweep(file, options, commit) for file in left)
        try:
            for row in found:
                yield waiting.pop(str(row["problem"])), row
        except (KeyError, ValueError) as error:  # the process ended within a line, say
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        if len(waiting) == before and time.monotonic() < until:  # the first module ended the process
            yield waiting.pop(next(iter(waiting))), {"verdict": "failed", "exit": 70, "commit": commit, "reason": "the sweep's process ended"}


def summary(rows: Sequence[dict[str, Cell]]) -> str:
    """The counts and the mean that the table comes to."""
    verdicts = Counter(str(row["verdict"]) for row in rows)
    speedups = [max(float(row["speedup"]), 1e-3) if row.get("low") else 1.0 for row in rows]  # type: ignore[arg-type]
    short = sum(float(row["eager ms"]) < 0.05 for row in rows if row.get("eager ms"))  # type: ignore[arg-type]
    mean = f"; geometric mean over the best of eager and compile {geometric_mean(speedups):.2f}x" if speedups else ""
    compiled = sum(bool(row.get("compile ms")) for row in rows)
    counts = ", ".join(f"{n} {word}" for word, n in sorted(verdicts.items()))
    return (f"{len(rows)} of {len(SIZES)} modules: {counts}{mean}. Compile was ready in time for {compiled}; the others are over eager alone. "
            f"Eager takes less than 0.05 ms of {short}. Each row has the commit that it was measured at.")  # fmt: skip


def kept(rows: dict[str, dict[str, Cell]], name: str, where: Conditions | None = None) -> None:
    """Write the record, in the order of the table of modules, as measured under ``where``."""
    ordered = [rows[module] for module in SIZES if module in rows]
    record(name, TITLE, ordered, summary(ordered), where)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=int, default=6)
    parser.add_argument("--baselines", default="eager,compile")
    parser.add_argument("--time", type=float, default=200.0, help="seconds of each sweep")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end all sweeps after so many seconds")
    parser.add_argument("--at-once", type=int, default=1, help="sweeps beside each other")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th module, from the I-th on")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="RECORD", help="put the rows of other records into this one")
    parser.add_argument("--only", default="", help="regular expression over the modules' names")
    parser.add_argument("--again", action="store_true", help="sweep recorded modules again")
    parser.add_argument("--compile-only", action="store_true", help="plan, render and compile, without a GPU")
    parser.add_argument("--jobs", type=int, default=2, help="processes that plan, or compile")
    options = parser.parse_args()
    options.dtype = options.accuracy = options.cut = None
    options.sizes = []
    if options.merge:
        records = [json.loads(path.read_text(encoding="utf-8")) for path in options.merge]
        rows = {str(row["module"]): row for row in (*recorded(NAME), *(row for found in records for row in found["rows"]))}
        kept(rows, NAME, Conditions(**records[-1]["conditions"]))
        return 0
    at, of = map(int, options.shard.split("/"))
    name = NAME if of == 1 else f"{NAME}_{at}of{of}"
    rows = {} if options.compile_only else {str(row["module"]): row for row in recorded(name)}
    names = [module for module in list(SIZES)[at - 1 :: of] if re.search(options.only, module) and (options.again or module not in rows)]
    with tempfile.TemporaryDirectory() as folder:
        files = written(names, Path(folder))
        if options.compile_only:
            return int(compile_all(files, options.jobs) > 0)
        with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
            calls = {module: pool.submit(library_calls, path) for module, path in files.items()}
            where = conditions()
            for module, row in swept(files, options, where.commit, options.seconds):
                found: dict[str, Cell] = {"module": module, **{column: row.get(column) for column in _COLUMNS}}
                if found["speedup"] and not found["low"]:
                    found["verdict"] = "not judged"  # the time was up before the finals
                error = calls[module].exception()
                rows[module] = found | {"library calls": str(error) if error else calls[module].result(), "gpu": where.gpu.partition(",")[0]}
                print(json.dumps(rows[module]), file=sys.stderr, flush=True)
                kept(rows, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
