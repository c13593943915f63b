"""Sweep KernelBench problems as a user would, and record one row for each.

    python benchmarks/kernelbench.py KernelBench/level1 KernelBench/level2 [--seconds 550] [--memory] [--at-once 4]

A row that is recorded already is skipped, so the same command goes on where the last one ended (``--again`` repeats).
Each row names the commit that it was measured at. ``--seconds`` bounds the whole run. All problems are one suite of
``kgen sweep``, so that a problem's seconds hold no imports. With ``--cut``, ``--memory`` and ``-D`` each is a sweep from
nothing. ``--cut`` halves the problems' sizes until a forward suits two CPU cores. ``--record NAME``
keeps another list of problems in a record of its own. ``--memory`` also measures device memory: the
peak of all of kgen's processes, and that of eager alone.
``--accuracy`` and ``--dtype`` sweep in another class or a half type, in a record of its own.
``--at-once`` runs several sweeps beside each other: kgen's locks keep them out of each other's timings, and each row says
how many there were. Their seconds are then no measure of one sweep. ``of a copy`` is the time that a copy of the
problem's inputs, weights and outputs takes, over the winner's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from _record import RESULTS, ROOT, Cell, conditions, record
from _sizes import cut

NAME = "kernelbench"
TITLE = "Problems, one sweep each"
SWEEP_SECONDS = 900  # s; a sweep that takes longer is killed and recorded as failed
#: Of all sweeps, as an installation has it: some images have no bytecode of torch, which costs seconds in each process.
BYTECODE = Path(tempfile.gettempdir()) / "kgen-bytecode"
_REASON = 200  # characters; of the first candidate that failed, or of a sweep that did not end
POLL_MS = 50  # ms between two readings of the device's memory

_EAGER = """
import runpy, sys, torch
names = runpy.run_path(sys.argv[1])
torch.manual_seed(0)
with torch.device("cuda"):
    model = names["Model"](*names.get("get_init_inputs", list)())
    inputs = names["get_inputs"]()
with torch.no_grad():
    model(*inputs)
torch.cuda.synchronize()
"""


class MemoryPeak:
    """The most memory in use on the first device, in MiB, beyond what was in use at the start."""

    def __init__(self) -> None:
        self.mib = 0

    @contextlib.contextmanager
    def measured(self) -> Iterator[MemoryPeak]:
        """Poll the device until the block ends."""
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
        command = ["nvidia-smi", "-i", first, "--query-gpu=memory.used", "--format=csv,noheader,nounits", f"-lms={POLL_MS}"]
        poller = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert poller.stdout is not None
        idle = int(poller.stdout.readline())
        reader = threading.Thread(target=self._read, args=(poller, idle), daemon=True)
        reader.start()
        try:
            yield self
        finally:
            poller.terminate()
            reader.join()

    def _read(self, poller: subprocess.Popen[str], idle: int) -> None:
        for line in poller.stdout or ():
            self.mib = max(self.mib, int(line) - idle)


def problem_files(paths: list[Path]) -> list[Path]:
    """The problem files of folders and files, by level and number."""
    found = [file for path in paths for file in (path.glob("*.py") if path.is_dir() else [path])]
    return sorted(found, key=lambda file: (file.parent.name, int(re.match(r"\d*", file.stem)[0] or 0), file.stem))


def sweep(file: Path, options: argparse.Namespace, commit: str, more: Sequence[str] = ()) -> dict[str, Cell]:
    """One sweep from nothing, with ``more`` words of the command line, as a row. A sweep that does not end is a row, too."""
    words = ["sweep", str(file.resolve()), "--device", options.device, "--budget", str(options.budget)]
    words += ["--baselines", options.baselines, "--json", *_numbers(options)]
    cut_to = cut(file) if options.cut else {}
    sizes = [*options.sizes, *(f"{name}={value}" for name, value in cut_to.items())]
    words += [word for size in sizes for word in ("-D", size)] + list(more)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        started = time.monotonic()
        with running(words, home) as process:
            try:
                out, err = process.communicate(timeout=SWEEP_SECONDS)
                code = process.returncode
            except subprocess.TimeoutExpired as expired:
                process.kill()
                code, out, err = None, _text(expired.stdout), f"killed after {SWEEP_SECONDS} s"
        seconds = time.monotonic() - started
        if code == 70:  # a bug of kgen: its traceback is wanted
            print(err, file=sys.stderr)
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        found = row(file, events, err, Path(home) / "kgen.db", sizes)
    return found | {"seconds": seconds, "exit": code, "commit": commit}


def _numbers(options: argparse.Namespace) -> list[str]:
    """The words that ask for a half type, a class of accuracy, or an end after some seconds."""
    asked = {"--dtype": options.dtype, "--accuracy": options.accuracy, "--time": options.time}
    return [word for option, value in asked.items() if value for word in (option, str(value))]


def row(
    file: Path, events: list[Mapping[str, Any]], err: str, database: Path, sizes: Sequence[str] = ()
) -> dict[str, Cell]:
    """The figures of one problem's sweep."""
    level, problem = key_of(file)
    found: dict[str, Cell] = {"level": level, "problem": problem}
    found |= {"sizes": ", ".join(sizes)} if sizes else {}
    found |= _verdict(events, err) | {"of a copy": None}
    limits = _limits(database, next((e["sweep"] for e in events if e["event"] == "started"), ""))
    if found["ms"] and limits.get("copy_gbytes_per_second"):
        found["of a copy"] = limits["nbytes"] / limits["copy_gbytes_per_second"] / 1e6 / float(str(found["ms"]))
    return found


def suite(files: list[Path], options: argparse.Namespace, commit: str, seconds: float) -> Iterator[dict[str, Cell]]:
    """The rows of a suite that takes ``seconds`` at most, as its problems end."""
    words = ["sweep", *(str(file.resolve()) for file in files), "--device", options.device, "--budget", str(options.budget)]
    words += ["--baselines", options.baselines, "--at-once", str(options.at_once), "--json", *_numbers(options)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, running(words, home, None) as process:
        ending = threading.Timer(min(seconds, threading.TIMEOUT_MAX), process.send_signal, [signal.SIGINT])
        ending.daemon = True
        ending.start()
        told: dict[int, list[Mapping[str, Any]]] = {}
        latest = 0
        assert process.stdout is not None
        for event in map(json.loads, process.stdout):
            latest = event["number"] if event["event"].startswith("problem_") else latest
            told.setdefault(event.get("number_in_suite", latest), []).append(event)
            if event["event"] != "problem_ended" or event["outcome"] == "interrupted":
                continue
            mine = told.pop(event["number"])
            finished = next((e for e in mine if e["event"] == "finished"), {})
            code = {"swept": 0 if finished.get("beats_baseline") else 1, "refused": 2}.get(event["outcome"], 70)
            yield row(Path(event["path"]), mine, event["reason"], Path(home) / "kgen.db") | {
                "seconds": event["seconds"], "exit": code, "commit": commit}
        ending.cancel()


@contextlib.contextmanager
def running(words: list[str], home: str, errors: int | None = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """The command kgen with its own folder and database, and where its errors go; it is interrupted where the block ends before it does."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "KGEN_HOME": home}
    environment.pop("KGEN_DB", None)
    environment |= {"PYTHONPYCACHEPREFIX": str(BYTECODE), "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "kgen", *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors,
        text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()


def _limits(database: Path, sweep: str) -> dict[str, Any]:
    """The work and the device's rates that a sweep kept; empty where it did not begin."""
    if not database.exists():
        return {}
    with contextlib.closing(sqlite3.connect(database)) as connection:
        kept = connection.execute("SELECT arguments FROM sweep WHERE id = ?", [sweep]).fetchone()
    return json.loads(kept[0]).get("roofline") or {} if kept else {}


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _verdict(events: list[Mapping[str, Any]], err: str) -> dict[str, Cell]:
    """The figures of a sweep's events; empty cells where it did not end."""
    finished = next((e for e in events if e["event"] == "finished"), None)
    judged = [e for e in events if e["event"] == "evaluated"]
    controls = [e["status"] for e in judged if e.get("control")]
    statuses = [e["status"] for e in judged]
    leaders = finished["leaders"] if finished else []
    best = next((x for x in leaders if finished and x["candidate"] and x["candidate"] == finished["best"]), {})
    baselines = {x["name"]: x["median_ms"] for x in leaders if x["candidate"] is None}
    fails = sorted({s for s in statuses if s not in ("ok", "duplicate")})
    return {
        "verdict": _word(finished, best, controls, statuses),
        "ms": best.get("median_ms"),
        "speedup": best.get("speedup"),
        "low": best.get("speedup_low"),
        "high": best.get("speedup_high"),
        "eager ms": baselines.get("eager"),
        "compile ms": baselines.get("compile"),
        "error / PyTorch's": best.get("error_ratio"),
        "control": controls[0] if controls else None,
        "right": statuses.count("ok"),
        "tried": len(statuses),
        "failed as": ", ".join(fails),
        "plan": best.get("name"),
        "reason": next((str(e.get("reason")) for e in judged if e["status"] in fails), "")[:_REASON] if finished
        else (err.strip().splitlines() or [""])[-1][:_REASON],
        "params": best.get("params"),
    }


def _word(
    finished: Mapping[str, Any] | None, best: Mapping[str, Any], controls: list[str], statuses: list[str]
) -> str:
    """The verdict in one word, as ``kgen scores`` has it."""
    if finished is None:
        return "failed"
    if not best or best.get("speedup_low") is None:
        return "same" if "ok" in controls else "slower" if "ok" in statuses else "none right"
    low, high = best["speedup_low"], best["speedup_high"]
    return "faster" if low > 1.0 else "slower" if high < 1.0 else "same"


def memory(file: Path, options: argparse.Namespace, commit: str) -> dict[str, Cell]:
    """A sweep's row with the peaks of device memory, in GiB."""
    with MemoryPeak().measured() as eager:
        subprocess.run([sys.executable, "-c", _EAGER, str(file)], check=False, capture_output=True)
    with MemoryPeak().measured() as ours:
        row = sweep(file, options, commit)
    limit = 4 * eager.mib + 4096  # MiB: eager's own peak, three times that, and 4 GiB
    peaks = {"eager GiB": eager.mib / 1024, "kgen GiB": ours.mib / 1024}
    return row | peaks | {"within": "yes" if ours.mib <= limit else "no"}


def recorded(name: str) -> list[dict[str, Cell]]:
    """The rows of earlier runs."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def summary(rows: list[dict[str, Cell]]) -> str:
    """The counts and means that the table comes to."""
    verdicts = [str(row["verdict"]) for row in rows]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts)))
    speedups = [max(float(row["speedup"]), 1e-3) if row["speedup"] else 1.0 for row in rows if row["exit"] in (0, 1)]
    seconds = [float(row["seconds"]) for row in rows]
    mean = f"; geometric mean over the best baseline {geometric_mean(speedups):.2f}x" if speedups else ""
    return (
        f"{len(rows)} problems: {counts}{mean}; {median(seconds):.0f} s a problem in the median, {max(seconds):.0f} s at "
        "most. Each in the class of accuracy that the record names, else the default at its commit."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="problem files, or folders of them")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=int, default=8)
    parser.add_argument("--baselines", default="eager,compile")
    parser.add_argument("--time", type=float, help="end each sweep after about so many seconds")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no sweep after so many seconds")
    parser.add_argument("--only", default="", help="regular expression over the problems' names")
    parser.add_argument("--again", action="store_true", help="sweep recorded problems again")
    parser.add_argument("--memory", action="store_true", help="measure device memory, too")
    parser.add_argument("--at-once", type=int, default=1, help="sweeps beside each other")
    parser.add_argument("--record", default=NAME, metavar="NAME", help="name of the record")
    parser.add_argument("--cut", action="store_true", help="cut sizes until they suit a CPU of two cores")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), help="sweep the problems in a half type, in a record of its own")
    parser.add_argument("--accuracy", choices=("fp32", "tf32"), help="sweep the problems in this class, in a record of its own")
    parser.add_argument("-D", dest="sizes", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    parts = options.record, options.dtype, options.accuracy, "memory" if options.memory else "", "cpu" if options.device == "cpu" else ""
    name = "_".join(part for part in parts if part)
    started, where = time.monotonic(), conditions()
    commit, gpu = where.commit, where.gpu.partition(",")[0]
    rows = {(row["level"], row["problem"]): row for row in recorded(name)}
    files = [file for file in problem_files(options.paths) if re.search(options.only, file.stem)]
    waiting = [file for file in files if options.again or key_of(file) not in rows]
    left = started + options.seconds - time.monotonic()
    alone = options.memory or options.cut or options.sizes or len(waiting) < 2
    found = one_by_one(waiting, options, commit, left) if alone else suite(waiting, options, commit, left)
    for ended in found:
        rows[ended["level"], ended["problem"]] = ended | {"at once": options.at_once, "gpu": gpu}
        print(json.dumps(ended), file=sys.stderr, flush=True)
        ordered = sorted(rows.values(), key=lambda r: (r["level"] or 0, int(re.match(r"\d*", str(r["problem"]))[0] or 0)))
        record(name, TITLE, ordered, summary(ordered))


def one_by_one(
    files: list[Path], options: argparse.Namespace, commit: str, seconds: float
) -> Iterator[dict[str, Cell]]:
    """The rows of sweeps from nothing, as they end. No sweep begins after ``seconds``."""
    until = time.monotonic() + seconds

    def one(file: Path) -> dict[str, Cell] | None:
        return (memory if options.memory else sweep)(file, options, commit) if time.monotonic() < until else None

    with ThreadPoolExecutor(1 if options.memory else options.at_once) as pool:
        found = (ended.result() for ended in as_completed([pool.submit(one, file) for file in files]))
        yield from (row for row in found if row is not None)


def key_of(file: Path) -> tuple[int | None, str]:
    """The level and the name of a problem, which name its row."""
    level = re.sub(r"\D", "", file.parent.name)
    return int(level) if level else None, file.stem


if __name__ == "__main__":
    main()
