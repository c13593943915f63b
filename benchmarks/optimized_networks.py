"""Measures `kgen.optimize` in a program, for the networks of ``networks.py``, beside the sweep inside of it.

    python benchmarks/optimized_networks.py [--only REGEX] [--dtype bfloat16] [--minutes 4] [--name NAME]

A process optimises each network, and a second one finds it in the database. Speedups are over the module that came in: in the
program, both called in turns; by the sweep, over eager with a cold cache. ``beside its file`` is the optimised module's
speedup over its own file called directly: what the guard costs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import kernelbench
import networks
from _record import Cell, conditions, record

TITLE = "Networks by one line of Python"
_SECONDS = 2.0  # of each comparison
_BLOCKS, _CALLS = 7, 20
_LOCK = os.environ.get("GPU_LOCK")  # a file: programs that time on one GPU take turns


def _alone() -> Any:
    """The lock of the GPU, where the environment names one."""
    if _LOCK is None:
        return nullcontext()
    import fcntl

    file = open(_LOCK, "a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _milliseconds(call: Callable[[], Any], device: Any) -> float:
    """Milliseconds of a call, as the median of blocks of calls in a row."""
    from kgen.devices.runtime import runtime

    found, wait = [], runtime(device).wait
    for _ in range(_BLOCKS):
        wait()
        started = time.perf_counter()
        for _ in range(_CALLS):
            call()
        wait()
        found.append((time.perf_counter() - started) * 1e3 / _CALLS)
    return statistics.median(found)


def _row(network: str, dtype: str | None, minutes: float, db: str) -> dict[str, Cell]:
    """Optimise a network in this process, or find it in the database, and time it."""
    import torch

    import kgen
    from kgen.optimized import trial

    file, sizes = networks.NETWORKS[network]
    names: dict[str, Any] = {"__name__": "network"}
    text = file.read_text(encoding="utf-8")
    for key, value in sizes.items():
        text, number = re.subn(rf"^{key} = .*$", f"{key} = {value!r}", text, flags=re.MULTILINE)
        if number != 1:
            raise ValueError(f"{file}: it names {key} {number} times")
    exec(compile(text, str(file), "exec"), names)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = names["Model"](*names.get("get_init_inputs", list)()).to(device).eval()
    inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in names["get_inputs"]()]
    if dtype:
        model = model.to(getattr(torch, dtype))
        inputs = [x.to(getattr(torch, dtype)) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    started = time.monotonic()
    fast: Any = kgen.optimize(model, inputs, minutes=minutes, modules="whole", db=db)
    row: dict[str, Cell] = {"network": network, "optimize, s": round(time.monotonic() - started, 1)}
    report = fast.kgen
    if not report.replaced:
        return row | {"reason": report.tried[0].reason if report.tried else ""}
    (winner,) = report.parts[0].winners
    entry = report.parts[0].dispatches[0].entries[0]
    with torch.no_grad(), _alone():
        own = trial.compared(lambda: model(*inputs), lambda: fast(*inputs), device, _SECONDS)
        direct = trial.compared(lambda: entry.model(*inputs), lambda: fast(*inputs), device, _SECONDS)
        module_ms, fast_ms = (_milliseconds(lambda: called(*inputs), device) for called in (model, fast))
    eager = dict(winner.baselines).get("eager")
    sweep = eager / winner.median_ms if eager else None
    row |= {"in the program": own.mid, "low": own.low, "high": own.high, "by the sweep": sweep, "beside its file": direct.mid}
    row |= {"module, ms": module_ms, "optimised, ms": fast_ms, "eager by the sweep, ms": eager, "file by the sweep, ms": winner.median_ms}
    row |= {"over the best baseline": winner.speedup.mid, "memory beside, MB": round(report.extra_bytes / 1e6, 1)}
    return row | {"fallbacks": sum(report.fallbacks.values()), "reason": ""}


def _measured(network: str, options: argparse.Namespace, db: str) -> dict[str, Cell]:
    """The row of one network: a process optimises it, and another one finds it."""
    words = [sys.executable, __file__, "--row", network, "--minutes", str(options.minutes), "--db", db]
    rows = []
    for _ in range(2):
        started, said = time.monotonic(), "it ended"
        with subprocess.Popen(
            words + (["--dtype", options.dtype] if options.dtype else []), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            for line in process.stderr or ():
                said = line.rstrip() or said
                print(f"{network} {time.monotonic() - started:6.1f} s  {said}", file=sys.stderr, flush=True)
            lines = process.stdout.read().splitlines() if process.stdout else []
        if process.returncode or not lines:
            return {"network": network, "reason": said}
        rows.append(json.loads(lines[-1]))
    first, second = rows
    where = conditions()
    return first | {"found again, s": second["optimize, s"], "commit": where.commit, "gpu": where.gpu.partition(",")[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression over the networks' names")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"))
    parser.add_argument("--minutes", type=float, default=4.0, help="of the search for each network")
    parser.add_argument("--name", default="optimized_networks", help="the record's name")
    parser.add_argument("--db", help="keep results there; else a new database for each network")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(_row(options.row, options.dtype, options.minutes, options.db)))
        return
    rows = {row["network"]: row for row in kernelbench.recorded(options.name)}
    for network in [n for n in networks.NETWORKS if re.search(options.only, n)]:
        with tempfile.TemporaryDirectory() as folder:
            rows[network] = _measured(network, options, options.db or str(Path(folder) / "kgen.db"))
        print(json.dumps(rows[network]), file=sys.stderr, flush=True)
        ordered = sorted(rows.values(), key=lambda row: list(networks.NETWORKS).index(str(row["network"])))
        note = f"`kgen.optimize(model, inputs, minutes={options.minutes:g})` in eval mode, {options.dtype or 'float32'}."
        record(options.name, TITLE, ordered, note)


if __name__ == "__main__":
    main()
