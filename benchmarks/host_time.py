"""Measures the host time of a call: of exported modules, and of eager PyTorch beside each.

    python benchmarks/host_time.py KernelBench/level1 KernelBench/level2 [--record kernelbench] [--layers 2 12] [--only REGEX] [--before CHECKOUT]

Ten recorded winners are rendered again from their plans and parameters. BERT is the first plan that the search would
try, with kernels that are compiled at a low level of optimisation. Each module has a process of its own. Host time is
the time until a call returns while nothing is queued on the device, under ``torch.no_grad``. Each figure is the median
of CALLS calls. ``kernels`` are launches of the export's own kernels in one call, as the profiler sees
them. ``library calls`` are all other calls into PyTorch, views among them. ``derived`` are tensors that are made from
weights and kept. The goal is 12 us, 2.5 us a kernel, 3 us a library call and 0.12 us a derived tensor, and no more than
eager's. ``before`` is the export of another checkout. ``call`` is the same forward in one call of C, ``graph`` replayed as a CUDA graph. ``floor`` is
a module that only allocates one small tensor and launches as many empty kernels, by one call of a C function. All take turns.
``1 launch`` is one empty kernel without a module, and ``new_empty`` one small tensor. ``goal here`` is the goal, or the floor
where that is more.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from _record import ROOT, Cell, record
from kernelbench import NAME, key_of, problem_files, recorded
from kernelbench_check import alone, source_of

from kgen.candidate import CALL, GRAPH, LAUNCHING
from kgen.errors import NotFoundError

BERT = Path(__file__).parent / "host_time_problems" / "bert.py"
CALLS, WARM_UP = 1000, 20
SECONDS = 500  #: for one module, its build included
#: Of the goal, in us: a call, a kernel, a library call, a derived tensor.
GOAL = (12.0, 2.5, 3.0, 0.12)
#: Levels and numbers of problems: matmul, reductions, a convolution and a scan; chains of one to five kernels.
WINNERS = {(1, 1), (1, 23), (1, 40), (1, 50), (1, 89), (2, 13), (2, 21), (2, 37), (2, 39), (2, 99)}
#: Functions of an export that are no call of the library.
_OWN = {"launch", "dense", "new_empty", "data_ptr", "on_device"}


# In the process of one module ------------------------------------------------------------------------------------


def bert(layers: int, launching: str = "") -> tuple[str, str]:
    """The problem's text and a candidate for it: the plainest of its first plan, quick to compile."""
    from kgen.devices.hardware import gpu
    from kgen.problems.problem import load, read_problem
    from kgen.protocol import Accuracy
    from kgen.tuning.design import Design, captured
    from kgen.tuning.search import Point

    loaded = load(read_problem(str(BERT), {"layers": str(layers)}, mode="eval"))
    design = Design(loaded.problem, captured(loaded, "cuda"), gpu("cuda:0"), Accuracy.PYTORCH)
    source = design.candidate(Point(0, (0,) * len(design.options[0].kernels), launching)).source
    return loaded.problem.source, source.replace('CUDA_FLAGS = ["-O3", ', 'CUDA_FLAGS = ["--Ofast-compile=max", ')


EMPTY = """
#include <cuda_runtime.h>
__global__ void empty() {}
extern "C" int launch(int count, void* stream) {
    for (int n = 0; n < count; ++n) empty<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>();
    return cudaGetLastError();
}
"""


def floor_of(kernels: int) -> dict[str, Callable[[], Any]]:
    """Calls that do the least: a module's, a launch's, an allocation's."""
    import ctypes

    import torch
    from torch.utils.cpp_extension import load_inline

    library = ctypes.CDLL(load_inline("host_time_floor", "", EMPTY, is_python_module=False, no_implicit_headers=True))
    library.launch.argtypes = [ctypes.c_int, ctypes.c_void_p]

    class Floor(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.new_empty(64, 64)
            library.launch(kernels, torch._C._cuda_getCurrentRawStream(0))
            return y

    module, x = Floor(), torch.ones(64, 64, device="cuda")
    return {
        "floor us": lambda: module(x), "1 launch us": lambda: library.launch(1, torch._C._cuda_getCurrentRawStream(0)),
        "new_empty us": lambda: x.new_empty(64, 64),
    }  # fmt: skip


def measured(problem_text: str, source: str, training: bool, lock: Path, before: str = "", call: str = "", graph: str = "") -> dict[str, Cell]:
    """Host times of eager and of the export, and what the goal counts. Nothing is measured while a module is built."""
    import torch

    with alone(lock, fcntl.LOCK_SH):
        problem, candidate = (_executed(text) for text in (problem_text, source))
        others = {name: _executed(text) for name, text in (("before us", before), ("call us", call), ("graph us", graph)) if text}
        floor_of(1)  # is built

    def made(kind: Callable[..., Any]) -> Any:
        torch.manual_seed(42)
        with torch.device("cuda"):
            return kind(*problem.get("get_init_inputs", list)()).cuda().train(training)

    with alone(lock), torch.no_grad():
        eager, new = made(problem["Model"]), made(candidate["ModelNew"])
        with torch.device("cuda"):
            inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in problem["get_inputs"]()]
        kernels = _own_launches(lambda: new(*inputs), source)
        calls = {"eager us": lambda: eager(*inputs), "export us": lambda: new(*inputs)}
        modules = {name: made(found["ModelNew"]) for name, found in others.items()}
        calls |= {name: lambda module=module: module(*inputs) for name, module in modules.items()} | floor_of(kernels)
        times = dict(zip(calls, _host_times([*calls.values()])))
    counts = kernels, _library_calls(source), len(getattr(new._prepared, "made", ())) if hasattr(new, "_prepared") else 0
    bound = GOAL[0] + sum(cost * count for cost, count in zip(GOAL[1:], counts))
    return {
        "kernels": counts[0], "library calls": counts[1], "derived": counts[2],
        **{name: times.get(name) for name in ("eager us", "before us", "export us", "call us", "graph us", "floor us", "1 launch us", "new_empty us")},
        "goal us": min(bound, times["eager us"]), "goal here us": (here := min(max(bound, times["floor us"]), times["eager us"])),
        "reached": "yes" if times["export us"] <= min(bound, times["eager us"]) else "here" if times["export us"] <= here else "no",
    }  # fmt: skip


def _executed(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "file"}
    exec(compile(text, "file.py", "exec"), names)
    return names


def _host_times(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """The median microseconds until each call returns, with nothing queued; calls take turns."""
    import torch

    found: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(WARM_UP):
            call()
    for _ in range(int(os.environ.get("HOST_TIME_CALLS", CALLS))):
        for call, times in zip(calls, found):
            torch.cuda.synchronize()
            started = time.perf_counter()
            call()
            times.append((time.perf_counter() - started) * 1e6)
    return [median(times) for times in found]


def _own_launches(call: Callable[[], Any], source: str) -> int:
    """Launches of kernels that are defined in ``source``, in one call."""
    import torch

    own = set(re.findall(r"(\w+)\([^()]*\) \{$", source, re.MULTILINE))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    names = [re.match(r"(?:void )?(?:[\w()]+::| )*(\w+)", e.name) for e in profile.events() if e.device_type.name == "CUDA"]
    return sum(name is not None and name[1] in own for name in names)


def _library_calls(source: str) -> int:
    """Calls into PyTorch in the text of the mode's method."""
    model = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew")
    run = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "_run")
    calls = [n.func for n in ast.walk(run) if isinstance(n, ast.Call)]
    names = [f.attr if isinstance(f, ast.Attribute) else f.id for f in calls if isinstance(f, (ast.Attribute, ast.Name))]
    return sum(name not in _OWN and name != "max" for name in names)


def one(words: Sequence[str]) -> dict[str, Cell]:
    lock, checkout, *module = words
    texts = _kept_texts([checkout, *module])
    if texts["export"] is None:
        return {"reached": "the recorded text no longer renders"}
    return measured(texts["problem"], texts["export"], module[0] != "bert", Path(lock), texts["before"] or "", texts["call"] or "", texts["graph"] or "")


def _kept_texts(words: Sequence[str]) -> dict[str, str | None]:
    """The problem's text and those of its exports; kept beside builds, so that another run renders nothing."""
    file = Path(os.environ["KGEN_HOME"], f"texts-{hashlib.sha256(repr(words).encode()).hexdigest()[:16]}.json")
    if not file.exists():
        checkout, *module = words
        problem = bert(int(module[1]))[0] if module[0] == "bert" else Path(module[1]).read_text(encoding="utf-8")
        ways = {"export": "", "call": CALL, "graph": GRAPH}
        found = {"problem": problem, **{name: _source(module, way) for name, way in ways.items()}, "before": _text_of(checkout, module) if checkout else None}
        file.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def _source(words: Sequence[str], launching: str = "") -> str | None:
    """The candidate's text; ``None`` where it has none that is launched so."""
    if words[0] == "bert":
        return None if launching == CALL else bert(int(words[1]), launching)[1]
    _, file, plan, params = words
    try:
        return source_of(Path(file), plan, f"{params}, {LAUNCHING}={launching}" if launching else params)
    except NotFoundError:
        if not launching:
            raise
        return None


def _path(*folders: Path) -> str:
    """Folders in front of those that Python looks for modules in."""
    return os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH", "")]))


def _text_of(checkout: str, words: Sequence[str]) -> str:
    """The candidate's text of another checkout; empty where it renders none."""
    folder = Path(checkout).resolve()
    environment = os.environ | {"PYTHONPATH": _path(folder, folder / "benchmarks")}
    code = f"import host_time, pathlib, kernelbench_check as k; w = {list(words)!r}; " \
        "print(host_time.bert(int(w[1]))[1] if w[0] == 'bert' else k.source_of(pathlib.Path(w[1]), w[2], w[3]) or '')"
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=folder / "benchmarks")
    return ran.stdout if ran.returncode == 0 else ""


# The conductor ---------------------------------------------------------------------------------------------------


def in_a_process(words: Sequence[str], builds: Path | None) -> dict[str, Cell]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = str(builds or temporary)
        environment = os.environ | {"TORCH_EXTENSIONS_DIR": folder, "PYTHONPATH": _path(ROOT), "KGEN_HOME": folder}
        try:
            ran = subprocess.run([sys.executable, __file__, "--one", *words], env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return {"reached": f"not measured within {SECONDS} s"}
    if ran.returncode:
        return {"reached": f"not measured: {(ran.stderr.strip().splitlines() or ['?'])[-1][:160]}"}
    return json.loads(ran.stdout.splitlines()[-1])


def _commit(checkout: str) -> str:
    """The commit of a checkout, or of an archive of one that says it in its file ``COMMIT``."""
    said = Path(checkout, "COMMIT")
    if said.exists():
        return said.read_text().strip()
    return subprocess.run(["git", "-C", checkout, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip()


def main(words: Sequence[str]) -> None:
    if words[:1] == ["--one"]:
        print(json.dumps(one(words[1:])))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="problem files, or folders of them")
    parser.add_argument("--record", default=NAME, metavar="NAME", help="name of the record that has the winners")
    parser.add_argument("--layers", nargs="*", type=int, default=[2], help="of BERT; 12 are BERT base")
    parser.add_argument("--only", default="", help="regular expression over the modules' names")
    parser.add_argument("--at-once", type=int, default=max(1, len(os.sched_getaffinity(0)) - 2), help="modules that are built beside each other")
    parser.add_argument("--builds", type=Path, metavar="FOLDER", help="where built modules stay, so that another run builds nothing")
    parser.add_argument("--before", default="", metavar="CHECKOUT", help="a checkout of an earlier commit, whose exports are measured, too")
    options = parser.parse_args(words)
    if options.builds:
        options.builds.mkdir(parents=True, exist_ok=True)
    winners = {(row["level"], row["problem"]): row for row in recorded(options.record)}
    tasks = {}
    for file in problem_files(options.paths):
        key = key_of(file)
        if key in winners and (key[0], int(str(key[1]).partition("_")[0])) in WINNERS:
            row = winners[key]
            tasks[f"level {key[0]}, {file.stem}"] = ["winner", str(file.resolve()), str(row["plan"]), str(row["params"] or "")]
    tasks |= {f"BERT, {count} layers": ["bert", str(count)] for count in options.layers}
    names = [name for name in tasks if re.search(options.only, name)]
    rows = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        lock = str(Path(folder) / "device")
        for name, found in zip(names, pool.map(lambda name: in_a_process([lock, options.before, *tasks[name]], options.builds), names)):
            rows.append({"module": name} | found)
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    notes = __doc__.replace("CALLS", os.environ.get("HOST_TIME_CALLS", f"{CALLS}")).partition("\n\n")[2].partition("\n\n")[2].replace("\n", " ").strip()
    notes += f" Before: {_commit(options.before)}." if options.before else ""
    record("host_time", "Host time of a call", rows, notes)


if __name__ == "__main__":
    main(sys.argv[1:])
