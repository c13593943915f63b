"""How far kgen reaches over folders of problems, and how long ``kgen plan`` takes: needs no GPU.

    python benchmarks/plan_breadth.py FOLDER... [--arch sm_90] [--name plan_breadth] [--print]

Each problem is one process, from start to end. ``--print`` shows the table and keeps nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from _record import Cell, record

LIMIT_SECONDS = 120  #: of one problem


def measure(path: Path, arch: str) -> dict[str, Cell]:
    """Plan one problem in a process of its own; what it lacks is empty where that fails."""
    command = [sys.executable, "-m", "kgen", "plan", str(path), "--arch", arch, "--json"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment)
        failed = "" if ran.returncode == 0 else (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        failed = f"not done in {LIMIT_SECONDS} s"
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {} if failed else json.loads(ran.stdout)
    calls = Counter(name.removeprefix("aten.") for name in found.get("library_calls", ()))
    return {
        "problem": f"{path.parent.name}/{path.stem}",
        "seconds": seconds,
        "CPU seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "operators": sum(len(mode["operators"]) for mode in found["modes"]) if found else None,
        "library calls": ", ".join(name if n == 1 else f"{n} {name}" for name, n in calls.items()),
        "gigabytes": found["bytes"] / 1e9 if found else None,
        "gigaflops": found["flops"] / 1e9 if found else None,
        "limit ms": found.get("limit_ms"),
        "predicted ms": found.get("best_ms"),
        "predicted library ms": found.get("library_ms"),
        "failed": failed,
    }


def summary(rows: list[dict[str, Cell]]) -> str:
    """The figures over all problems, in one paragraph."""
    seconds = [float(row["seconds"]) for row in rows]  # type: ignore[arg-type]
    planned = [row for row in rows if not row["failed"]]
    whole = sum(not row["library calls"] for row in planned)
    return (
        f"{len(planned)} of {len(rows)} problems planned, {whole} of them without a library call. "
        f"Seconds for a problem: median {statistics.median(seconds):.1f}, largest {max(seconds):.1f}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--name", default="plan_breadth")
    parser.add_argument("--print", dest="only_print", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for path in (path for folder in arguments.folders for path in sorted(folder.glob("*.py"))):
        rows.append(measure(path, arguments.arch))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    notes = f"`kgen plan PROBLEM --arch {arguments.arch} --json`, whole processes one after another. {summary(rows)}"
    if arguments.only_print:
        print(notes)
    else:
        record(arguments.name, f"Plans for {arguments.arch}", rows, notes)


if __name__ == "__main__":
    main()
