"""Checks recorded winners by KernelBench's published evaluation protocol, and adds its answer to their rows.

    python benchmarks/kernelbench_check.py KernelBench/level1 KernelBench/level2 [--record kernelbench] [--only REGEX] [--new]

Each winner of the record is rendered again from its plan and parameters, and judged in a process of its own. The
protocol is written anew. It has seed 42 before each construction, and five trials whose seeds come from it. It allows
absolute and relative differences of 1e-4 to eager PyTorch. CUDA events around calls behind a flush of the cache time
them. Inputs are drawn on the device, and integers stay integers.

A refusal has a reason where PyTorch's own second run differs by as much, since dropout draws its masks again. It has one
where PyTorch in TF32 differs by as much from PyTorch in float32. It has one where PyTorch errs by more than the winner
against float64. Any other is ``refused``. KernelBench's events have the host's time in them: ``host us`` is that of one
call.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from _record import ROOT, Cell, record
from kernelbench import NAME, TITLE, key_of, problem_files, recorded, summary

SEED, TRIALS = 42, 5  #: of KernelBench's evaluation
TOLERANCE = 1e-4  #: absolute and relative, of its float32
WARM_UP, TIMED = 3, 30  #: calls
FLUSH_BYTES = 256 << 20  #: written before each timed call, as KernelBench does
SECONDS = 240  #: for one problem; a check that takes longer is ended
_HOST_CALLS = 200  # with nothing queued in front


# In the process of one problem -----------------------------------------------------------------------------------


def source_of(file: Path, plan: str, params: str) -> str | None:
    """The winner's text, rendered again; ``None`` where it no longer renders. Convolutions count as in TF32 if it takes them so."""
    from kgen.compiler.operators.facts import is_convolution
    from kgen.devices.hardware import gpu
    from kgen.problems.problem import load, read_problem, resolve_mode, without_values
    from kgen.protocol import Accuracy
    from kgen.tuning.design import Design, captured

    loaded = load(read_problem(str(file)))
    loaded = resolve_mode(loaded, without_values(loaded.model))
    found = captured(loaded, "cuda")
    graphs = [
        (mode, replace(graph, nodes=tuple(replace(n, tf32=True, products=1) if is_convolution(n) else n for n in graph.nodes)))
        for mode, graph in found.graphs
    ]
    wanted = _values(params)
    for capture in (replace(found, graphs=tuple(graphs)), found):
        design = Design(loaded.problem, capture, gpu("cuda:0"), Accuracy.PYTORCH)
        for name in {plan, *(option.name for option in design.options if option.name.split(" after ")[0] == plan)}:
            if (point := design.point(name, wanted)) is not None:
                return design.candidate(point).source
    return None


def _values(params: str) -> dict[str, Any]:
    pairs = (pair.partition("=") for pair in params.split(", ") if pair)
    return {name: int(value) if re.fullmatch(r"-?\d+", value) else value for name, _, value in pairs}


def judged(file: Path, source: str, turn: Callable[[], contextlib.AbstractContextManager[None]]) -> dict[str, Cell]:
    """KernelBench's answer to ``source``; ``turn`` holds the device alone. Files are built before."""
    import torch

    problem: dict[str, Any] = {"__name__": "problem"}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), problem)
    candidate: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, "candidate.py", "exec"), candidate)

    def made(kind: Callable[..., Any]) -> Any:
        torch.manual_seed(SEED)
        with torch.device("cuda"):
            return kind(*problem.get("get_init_inputs", list)()).cuda()

    def inputs(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        with torch.device("cuda"):
            return [x.cuda() if isinstance(x, torch.Tensor) else x for x in problem["get_inputs"]()]

    with turn(), torch.no_grad():
        reference, new = made(problem["Model"]), made(candidate["ModelNew"])
        torch.manual_seed(SEED)
        seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(TRIALS)]
        right = [_agree(reference(*given), new(*given)) for given in map(inputs, seeds)]
        reason = "" if all(right) else _reason(reference, new, lambda: inputs(seeds[right.index(False)]))
        given = inputs(SEED)
        times = {name: _events(lambda: model(*given)) for name, model in (("its ms", new), ("its eager ms", reference))}
        host = _host(lambda: new(*given))
    answer = "agrees" if all(right) else f"{TRIALS - sum(right)} of {TRIALS} refused: {reason}" if reason else "refused"
    return {"KernelBench": answer, **times, "its ratio": times["its eager ms"] / times["its ms"], "host us": host}


def _agree(expected: Any, found: Any) -> bool:
    import torch

    if isinstance(expected, (tuple, list)):
        return len(expected) == len(found) and all(map(_agree, expected, found))
    return expected.shape == found.shape and torch.allclose(expected.float(), found.float(), atol=TOLERANCE, rtol=TOLERANCE)


def _reason(reference: Any, new: Any, inputs: Callable[[], list[Any]]) -> str:
    """Why a right output may differ so; empty where there is no such reason."""
    import torch

    expected = reference(*inputs())
    if not _agree(expected, reference(*inputs())):
        return "so does PyTorch's own second run"
    torch.backends.cudnn.allow_tf32 = False
    exact = reference(*inputs())
    torch.backends.cudnn.allow_tf32 = True
    if not _agree(expected, exact):
        return "so does PyTorch's TF32 from its float32"
    errors = _errors(reference, new, inputs)
    return f"PyTorch errs by {errors[0]:.1e}, the winner by {errors[1]:.1e}" if errors and errors[1] <= errors[0] else ""


def _errors(reference: Any, new: Any, inputs: Callable[[], list[Any]]) -> tuple[float, float] | None:
    """The largest errors of PyTorch and of the winner against float64; ``None`` where memory ends."""
    import torch

    def largest(found: Any, exact: Any) -> float:
        parts = zip(found, exact) if isinstance(found, (tuple, list)) else [(found, exact)]
        return max(float((mine.double() - theirs).abs().max()) for mine, theirs in parts)

    try:
        found = reference(*inputs()), new(*inputs())
        given = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs()]
        exact = copy.deepcopy(reference).double()(*given)
        return largest(found[0], exact), largest(found[1], exact)
    except torch.OutOfMemoryError:
        return None


def _events(call: Callable[[], Any]) -> float:
    """The mean of the milliseconds between two events, each call behind a flush of the cache."""
    import torch

    for _ in range(WARM_UP):
        call()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    found = []
    for _ in range(TIMED + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.empty(FLUSH_BYTES // 8, dtype=torch.int64, device="cuda").fill_(42)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return mean(found[1:])


def _host(call: Callable[[], Any]) -> float:
    """Microseconds until a call returns, with nothing queued; the median."""
    import torch

    found = []
    for _ in range(_HOST_CALLS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        found.append((time.perf_counter() - started) * 1e6)
        if sum(found) > 1e6:
            break
    return median(found)


@contextlib.contextmanager
def alone(lock: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, how)
        yield


def check_one(file: Path, plan: str, params: str, lock: Path) -> dict[str, Cell]:
    source = source_of(file, plan, params)
    if source is None:
        return {"KernelBench": "not checked: the recorded text no longer renders"}
    return judged(file, source, lambda: alone(lock))


# The conductor ---------------------------------------------------------------------------------------------------


def check(file: Path, row: dict[str, Cell], lock: Path) -> dict[str, Cell]:
    """``row`` with KernelBench's answer."""
    if row["verdict"] not in ("faster", "same", "slower") or not row["ms"] or "params" not in row:  # rows of earlier commits
        return row
    words = [sys.executable, __file__, "--one", str(file), str(row["plan"]), str(row["params"] or ""), str(lock)]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"TORCH_EXTENSIONS_DIR": folder, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))), "KGEN_HOME": folder}
        try:
            ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SECONDS)
            found = json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else {
                "KernelBench": f"not checked: {(ran.stderr.strip().splitlines() or ['?'])[-1][:160]}"}
        except subprocess.TimeoutExpired:
            found = {"KernelBench": f"not checked: it did not end within {SECONDS} s"}
    return row | found


def main(words: Sequence[str]) -> None:
    if words[:1] == ["--one"]:
        file, plan, params, lock = words[1:]
        print(json.dumps(check_one(Path(file), plan, params, Path(lock))))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="problem files, or folders of them")
    parser.add_argument("--record", default=NAME, metavar="NAME", help="name of the record")
    parser.add_argument("--only", default="", help="regular expression over the problems' names")
    parser.add_argument("--new", action="store_true", help="leave out rows that have an answer")
    parser.add_argument("--at-once", type=int, default=max(1, len(os.sched_getaffinity(0)) - 2), help="problems that are built beside each other")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no check after so many seconds")
    options = parser.parse_args(words)
    rows = {(row["level"], row["problem"]): row for row in recorded(options.record)}
    files = {key_of(file): file for file in problem_files(options.paths) if re.search(options.only, file.stem)}
    until = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        lock = Path(folder) / "device"
        keys = [key for key in files if key in rows and not (options.new and rows[key].get("KernelBench"))]

        def one(key: tuple[Any, Any]) -> dict[str, Cell] | None:
            return check(files[key], rows[key], lock) if time.monotonic() < until else None

        for key, found in zip(keys, pool.map(one, keys)):
            if found is not None:
                rows[key] = found
                print(json.dumps({name: found.get(name) for name in ("level", "problem", "KernelBench", "its ratio", "host us")}), file=sys.stderr, flush=True)
    record(options.record, TITLE, [*rows.values()], summary([*rows.values()]))


if __name__ == "__main__":
    main(sys.argv[1:])
