"""Processor seconds of capture and of planning for a GPU, apart and without imports; needs no GPU.

    python benchmarks/planning.py FOLDER_OR_FILE... [--every N] [--beside FILE] [--print]

All problems run one after another in one process. ``--print`` prints the seconds of this tree as JSON and keeps nothing.
``--beside`` names such a file of another commit: the record then has both, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from _record import Cell, conditions, record

ARCH = "sm_90"

Seconds = dict[str, dict[str, float]]  #: of each problem: capture, plan


def measure(file: Path) -> dict[str, float]:
    """Capture a problem as a sweep does, then find its plans and their options."""
    from kgen.devices.hardware import for_arch
    from kgen.problems.problem import load, read_problem, resolve_mode, without_values
    from kgen.protocol import Accuracy
    from kgen.tuning import precision
    from kgen.tuning.design import Design, captured

    loaded = load(read_problem(str(file)))
    loaded = resolve_mode(loaded, without_values(loaded.model))
    started = time.process_time()
    capture = captured(loaded, "cuda")
    between = time.process_time()
    marked = tuple((mode, precision.predicted(graph)[0]) for mode, graph in capture.graphs)
    assert Design(loaded.problem, replace(capture, graphs=marked), for_arch(ARCH), Accuracy.PYTORCH).options
    return {"capture": round(between - started, 3), "plan": round(time.process_time() - between, 3)}


def all_seconds(files: Sequence[Path]) -> Seconds:
    from kgen.errors import KgenError

    found: Seconds = {}
    measure(files[0])  # imports, and tables that are made once
    for file in files:
        try:
            found[f"{file.parent.name}/{file.stem}"] = measure(file)
        except KgenError as error:
            print(f"{file}: {error}", file=sys.stderr)
    return found


def rows(now: Seconds, then: Seconds) -> list[dict[str, Cell]]:
    return [
        {"problem": name, **{f"{what}_s": seconds[what] for what in seconds},
         **({f"{what}_before_s": then[name][what] for what in seconds} if name in then else {})}
        for name, seconds in now.items()
    ]  # fmt: skip


def summary(now: Seconds, then: Seconds, commit: str) -> str:
    """Totals, and the geometric means of the ratios to the other commit."""
    both = [name for name in now if name in then]
    text = ", ".join(f"{what} {sum(now[name][what] for name in now):.0f} s" for what in ("capture", "plan"))
    if not both:
        return f"{len(now)} problems: {text} in all."
    ratios = {what: statistics.geometric_mean(now[name][what] / then[name][what] for name in both) for what in ("capture", "plan")}
    totals = {what: sum(now[name][what] for name in both) / sum(then[name][what] for name in both) for what in ratios}
    of = "; ".join(f"{what} takes {ratios[what]:.2f} times as long (geometric mean), {totals[what]:.2f} in all" for what in ratios)
    return f"{len(now)} problems: {text} in all. Beside commit {commit}, {of}."


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="problem files, or folders of them")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every N-th file")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="what --print gave at another commit")
    parser.add_argument("--print", action="store_true", help="print this tree's seconds")
    options = parser.parse_args(words)
    files = sorted(file for path in options.paths for file in (path.glob("*.py") if path.is_dir() else [path]))[:: options.every]
    now = all_seconds(files)
    if options.print:
        print(json.dumps({"commit": conditions().commit, "seconds": now}))
        return
    before = json.loads(options.beside.read_text()) if options.beside else {"commit": "", "seconds": {}}
    then = before["seconds"]
    note = summary(now, then, before["commit"])
    print(note)
    record("planning", "Capture and planning", rows(now, then), note)


if __name__ == "__main__":
    main(sys.argv[1:])
