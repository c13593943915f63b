"""The time of a sweep until its first right candidate, and whether a short sweep ends in a verdict.

    python benchmarks/first_verdict.py [--device cuda] [--cores 1 2] [--repeats N] [--seconds 30] [--name NAME]

Each run is one ``kgen sweep`` as a user starts it: a new process, an empty database, and nothing built. The disk is warm: an
unmeasured run goes before. ``--cores`` are the processors that the sweep and all its processes may use.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _record import ROOT, Cell, record

SIZES = ("-D", "batch_size=256", "-D", "in_features=256", "-D", "out_features=2048")
PROBLEMS = ("linear_gelu_softmax", "linear_scale_batchnorm")
GOAL = 8.0  # seconds on two cores, to the first right candidate with a kernel of its own


def sweep(problem: str, device: str, cores: int, seconds: float, bytecode: Path) -> dict[str, Cell]:
    """One sweep in an empty folder: the seconds of its steps from the start of the process, and its verdict."""
    with tempfile.TemporaryDirectory() as home:
        Path(home, "cache").mkdir()
        Path(home, "cache", "bytecode").symlink_to(bytecode)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))), "KGEN_HOME": home}
        environment.pop("KGEN_DB", None)
        words = ["sweep", problem, *SIZES, "--device", device, "--time", f"{seconds:g}", "--json"]
        allowed = sorted(os.sched_getaffinity(0))[:cores]
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "kgen", *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),
        )  # fmt: skip
        found: dict[str, float] = {}
        right = 0
        finished: dict = {}
        for line in process.stdout or ():
            now, event = time.monotonic() - start, json.loads(line)
            kind = event["event"]
            found.setdefault(kind, now)
            if kind == "evaluated" and event["status"] == "ok" and event["plan"] and not event.get("control"):
                right += 1
                found.setdefault("right", now)
            if kind == "finished":
                finished = event
        code = process.wait()
        took = time.monotonic() - start
    return {
        "problem": problem,
        "device": device,
        "cores": cores,
        "started, s": found.get("started"),
        "first built, s": found.get("built"),
        "first right, s": found.get("right"),
        "right": right,
        "end, s": took,
        "verdict": verdict(finished) if code in (0, 1) else f"exit code {code}",
    }


def verdict(finished: dict) -> str:
    """The result of the finals for the best candidate, in words."""
    timed = [x for x in finished.get("leaders", ()) if x["candidate"] and not x["control"] and x["speedup_low"] is not None]
    if not timed:
        return "none"
    best = next((x for x in timed if x["candidate"] == finished["best"]), timed[0])
    word = "faster" if best["speedup_low"] > 1.0 else "slower" if best["speedup_high"] < 1.0 else "same"
    return f"{word} {best['speedup']:.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="the --time of each sweep")
    parser.add_argument("--name", default="first_verdict", help="of the files of results")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as bytecode:
        sweep(PROBLEMS[0], arguments.device, arguments.cores[0], 10.0, Path(bytecode))
        for _ in range(arguments.repeats):
            for cores in arguments.cores:
                for problem in PROBLEMS:
                    rows.append(sweep(problem, arguments.device, cores, arguments.seconds, Path(bytecode)))
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    known = [float(row["first right, s"] or arguments.seconds) for row in rows if row["cores"] == max(arguments.cores)]
    notes = (
        f"The first right candidate of kgen's own came after **{statistics.median(known):.1f} s** in the median of {len(known)} "
        f"sweeps on {max(arguments.cores)} cores, and after {max(known):.1f} s in the slowest (the goal is {GOAL:g} s). Seconds "
        f"count from the start of the process. Sizes are {' '.join(SIZES[1::2])}, with --time {arguments.seconds:g} and every "
        "baseline."
    )
    record(arguments.name, "Time to the first verdict", rows, notes)


if __name__ == "__main__":
    main()
