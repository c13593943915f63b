"""Winners in a half type beside the least that their problem takes on this device: the library's bare product, and a copy.

    python benchmarks/half_precision.py PROBLEM... [--dtype bfloat16] [--budget 12] [--baselines eager,compile]

Each problem is swept from nothing, and its winner exported. The winner, the baselines and the product alone, which is
without a bias, are then timed interleaved in this process. The roofline time is the product's, and that of a copy of the bytes
that must move beside it. These are the fewest of any of the problem's plans, by its kernels' loads and stores.
"""

from __future__ import annotations

import argparse
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean

import torch
from _record import RESULTS, Cell, record
from products import milliseconds

from kgen.compiler.capture.capture import capture
from kgen.compiler.graph.dtypes import NARROW, nbytes
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import flops
from kgen.devices.hardware import Hardware, gpu
from kgen.problems.problem import load, read_problem
from kgen.protocol import Accuracy
from kgen.tuning.design import Design
from kgen.tuning.prediction import Predictor

_COMPILED = {"eager": None, "compile": "default", "compile-max-autotune": "max-autotune-no-cudagraphs"}


def exported(problem: str, options: argparse.Namespace, home: Path) -> Path | None:
    """The winner of one sweep, or the best of its right candidates; ``None`` where there is none."""
    environment = os.environ | {"KGEN_HOME": str(home)}
    of = [problem, "--dtype", options.dtype, "--device", "cuda"]
    words = ["sweep", *of, "--budget", str(options.budget), "--baselines", "eager,compile", "--quiet"]
    subprocess.run([sys.executable, "-m", "kgen", *words], env=environment, stdout=sys.stderr, check=False)
    file = home / "winner.py"
    subprocess.run([sys.executable, "-m", "kgen", "best", *of, "--any", "-o", str(file)], env=environment, stdout=sys.stderr, check=False)
    return file if file.exists() else None


def product(graph: OpGraph) -> tuple[Node, tuple[int, ...], tuple[int, ...], int]:
    """The largest contraction, the shapes of its operands, and the bytes of these and of its result."""
    node = max(graph.nodes, key=lambda n: flops(graph, n))
    x, w = (graph.type(name) for name in node.values[:2])
    moved = sum(t.numel * nbytes(t.dtype) for t in (x, w, node.type))
    return node, x.shape, w.shape, moved


def beside(graph: OpGraph, design: Design, predictor: Predictor) -> int:
    """The bytes that the problem's plans move at least beside the product's operands and result."""
    *_, own = product(graph)
    plans = [plan for choice in design.choices for _, plan in choice.plans[:1]]
    totals = [sum(step.cost.nbytes for step in predictor.prediction(plan).steps) for plan in plans]
    return max(0, min(totals) - own)


def row(problem: str, options: argparse.Namespace, hardware: Hardware) -> dict[str, Cell]:
    """The figures of one problem."""
    type_ = getattr(torch, options.dtype)
    loaded = load(read_problem(problem, dtype=options.dtype))
    captured = capture(loaded)
    graph = captured.graphs[0][1]
    design = Design(loaded.problem, captured, hardware, Accuracy.PYTORCH)
    node, x_shape, w_shape, _ = product(graph)
    multiply = torch.nn.functional.linear if node.op == "linear" else torch.matmul
    moved = beside(graph, design, Predictor(hardware, Accuracy.PYTORCH))
    with tempfile.TemporaryDirectory() as home:
        file = exported(problem, options, Path(home))
        names = runpy.run_path(loaded.problem.path)
        init = names.get("get_init_inputs", list)()
        torch.manual_seed(0)
        model = names["Model"](*init).cuda().to(type_)
        with torch.device("cuda"):
            inputs = [x.to(type_) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in names["get_inputs"]()]
        calls = subjects(model, inputs, options.baselines.split(","))
        x, w = (torch.randn(shape, device="cuda").to(type_) for shape in (x_shape, w_shape))
        calls["product"] = lambda: multiply(x, w)
        if file is not None:
            winner = runpy.run_path(str(file))["ModelNew"](*init).cuda().to(type_)
            winner.load_state_dict(model.state_dict())
            calls["winner"] = lambda: winner.train(model.training)(*inputs)
        with torch.no_grad():
            ms = milliseconds(calls)
    copy = hardware.ceilings.copy_gbytes_per_second
    roofline = ms["product"] + moved / copy / 1e6
    best = min(ms[name] for name in options.baselines.split(","))
    own = ms.get("winner")
    return {
        "problem": loaded.problem.name,
        "dtype": options.dtype,
        "product ms": ms["product"],
        "MB beside it": moved / 1e6,
        "roofline ms": roofline,
        **{f"{name} ms": ms[name] for name in options.baselines.split(",")},
        "winner ms": own,
        "of roofline": own / roofline if own else None,
        "baseline of roofline": best / roofline,
        "speedup": best / own if own else None,
        "won": (best - own) / (best - roofline) if own and best > roofline else None,
    }


def subjects(model: torch.nn.Module, inputs: Sequence[object], baselines: Sequence[str]) -> dict[str, Callable[[], object]]:
    """A call of each baseline."""
    calls: dict[str, Callable[[], object]] = {}
    for name in baselines:
        mode = _COMPILED[name]
        called = torch.compile(model, mode=mode) if mode else model
        calls[name] = lambda called=called: called(*inputs)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--dtype", default="bfloat16", choices=NARROW)
    parser.add_argument("--budget", type=int, default=12)
    parser.add_argument("--baselines", default="eager,compile", help="of " + ", ".join(_COMPILED))
    parser.add_argument("--record", default="half_precision", metavar="NAME", help="name of the record")
    options = parser.parse_args()
    hardware = gpu("cuda")
    rows: list[dict[str, Cell]] = []
    for problem in options.problems:
        rows.append(row(problem, options, hardware))
        print(rows[-1], flush=True)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        found = [float(r["won"]) for r in rows if r["won"] is not None]  # type: ignore[arg-type]
        won = [part for part in found if part > 0]
        notes = (
            "Medians with a cold cache, all subjects of a problem interleaved in one process. The product is the library's, "
            "without a bias. The roofline time adds a copy of the bytes that the plan with the fewest moves beside the product. "
            "`won` is the part of the best baseline's distance to it that the winner saves"
            + (f": {geometric_mean(won):.2f} in the geometric mean of {len(won)}; {len(found) - len(won)} others save nothing." if won else ".")
        )
        record(options.record, "Winners in half types beside the bare product", rows, notes)
    print(RESULTS / f"{options.record}.md", file=sys.stderr)


if __name__ == "__main__":
    main()
