"""The kernels behind a matmul, timed alone and compared with a device copy of the same bytes.

    python benchmarks/fused_tails.py [--most N]

Right candidates of each swept reference problem are loaded, with the matmul replaced by an existing tensor. The rest is
timed interleaved with a copy of as many bytes as the plan's kernels must move. Each tensor that a kernel reads or writes
counts once for that kernel. Device events take the times, with a cold cache and queued work that hides launches.
"""

from __future__ import annotations

import argparse
import os
from statistics import median
from types import SimpleNamespace
from typing import Any, Callable

import _gpu
import torch
from _record import record

from kgen import paths
from kgen.compiler.capture.capture import capture
from kgen.compiler.fusion.steps import FusionPlan
from kgen.devices.hardware import for_arch
from kgen.problems.problem import load
from kgen.store import Database, queries
from kgen.tuning.design import Design

ROUNDS = 25  # samples of each subject
_SLEEP_CYCLES = 1_000_000  # cycles; 0.5 ms, longer than the launch of a tail


def plans_of(problem: Any) -> dict[str, FusionPlan]:
    """The problem's plans with kernels, by name."""
    design = Design(problem, capture(load(problem)), for_arch("sm_90"))
    return {c.plans[0][1].name: c.plans[0][1] for c in design.choices if c.plans[0][1].kernels}


def tail(source: str, problem: Any, product: torch.Tensor) -> Callable[[], Any]:
    """The candidate's forward with its linear layer replaced by ``product``."""
    namespace: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, "candidate", "exec"), namespace)
    functional = SimpleNamespace(**vars(torch.nn.functional))
    functional.linear = lambda *_: product
    namespace["F"] = functional
    loaded = load(problem)
    with torch.device("cuda"):
        model = namespace["ModelNew"](*loaded.init_inputs())
    model.train(problem.mode == "train")
    x = torch.rand(product.shape[0], model.linear.in_features, device="cuda")
    return lambda: model(x)


def measure(subjects: dict[str, Callable[[], Any]], refresh: Callable[[], None]) -> dict[str, float]:
    """The median of each subject in microseconds, from interleaved samples."""
    flush = torch.ones(64 << 20, device="cuda")
    samples: dict[str, list[float]] = {name: [] for name in subjects}
    for function in subjects.values():
        function()
    for number in range(ROUNDS):
        order = list(subjects.items())
        for name, call in order if number % 2 else reversed(order):
            refresh()
            flush.add_(1.0)
            samples[name].append(_gpu.milliseconds(call, _SLEEP_CYCLES) * 1e3)
    return {name: median(values) for name, values in samples.items()}


def rows_of(database: Database, sweep: str, most: int) -> list[dict]:
    detail = queries.sweep(database, sweep, leaders=10_000)
    problem = queries.problem(database, detail.row.problem.id)
    plans = plans_of(problem)
    # Only plans whose single library call is the matmul: the bytes of library calls are not counted.
    right = [trial for trial in detail.leaders if trial.status == "ok" and trial.plan in plans]
    trials = [trial for trial in right if sum(not step.schedule for step in trial.plan_data.steps) == 1]
    (linear,) = [n for n in next(iter(plans.values())).graph.nodes if n.op == "linear"]
    given = torch.randn(linear.type.shape, device="cuda") * 0.3
    product = given.clone()
    chosen: dict[int, list] = {}
    for trial in trials:
        group = chosen.setdefault(sum(plans[trial.plan].bytes_moved(k) for k in plans[trial.plan].kernels), [])
        if len(group) < most:
            group.append(trial)
    rows = []
    # Plans that move the fewest bytes are the most fused.
    for moved in sorted(chosen)[:2]:
        source = torch.empty(moved // 8, device="cuda").normal_()
        target = torch.empty_like(source)
        subjects: dict[str, Callable[[], Any]] = {"copy": lambda: target.copy_(source)}
        by_id = {t.candidate: t for t in chosen[moved]}
        for trial in chosen[moved]:
            subjects[trial.candidate] = tail(queries.source(database, trial.candidate), problem, product)
        with torch.no_grad():
            times = measure(subjects, lambda: product.copy_(given))
        best = min((t for t in times if t != "copy"), key=times.__getitem__)
        rows.append({
            "problem": detail.row.problem.title,
            "mode": detail.row.problem.mode,
            "plan": by_id[best].plan,
            "MB moved": moved / 1e6,
            "best tail us": times[best],
            "copy us": times["copy"],
            "tail / copy": times[best] / times["copy"],
            "tail GB/s": moved / times[best] / 1e3,
            "tails timed": len(times) - 1,
            "params": ", ".join(f"{k}={v}" for k, v in by_id[best].params.items()),
        })  # fmt: skip
        del subjects
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=40, help="tails to time for each number of bytes")
    most = parser.parse_args().most
    builds = sorted(paths.builds().glob("cuda-*"))
    if builds:
        os.environ["TORCH_EXTENSIONS_DIR"] = str(builds[-1].resolve())
    rows = []
    with Database.open(create=False) as database:
        for row in queries.sweeps(database, limit=100):
            if row.state == "finished" and row.device.startswith("cuda"):
                rows += rows_of(database, row.id, most)
    rows.sort(key=lambda r: (r["problem"], r["mode"], r["MB moved"]))
    record("fused_tails", "Fused tails beside a device copy of the same bytes", rows, " ".join((__doc__ or "").split("\n\n")[2].split()))


if __name__ == "__main__":
    main()
