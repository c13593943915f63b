"""Times every point of a problem's space, so that strategies can be compared without a device.

    python benchmarks/record_sweep.py PROBLEM [--mode MODE] [-D NAME=VALUE] [--device DEVICE] [--plan TEXT]
                                      [--most N] [--rounds N] -o FILE

The candidates are built as in a sweep, loaded into one process, and called in turns. Each round has another order, so
that other load on the machine affects all of them equally. On a GPU, device events time each call with a cold cache. A
candidate whose output is far from PyTorch's has no time.

``--most N`` keeps N combinations of each kernel, chosen with a fixed seed. ``--plan TEXT`` keeps the plans whose names
contain TEXT. The product of the remaining combinations is then small enough to be timed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import _gpu
import torch
from _record import conditions

from kgen.candidate import Candidate
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import LoadedProblem, load, read_problem
from kgen.protocol import Accuracy
from kgen.tuning.design import Design, captured
from kgen.tuning.search import KernelSpace, Option, Point

_SLEEP_CYCLES = 200_000  # cycles; longer than a launch
_FAR = 1e-2  # share of the largest output; limit of the difference to PyTorch


def thinned(kernel: KernelSpace, common: str, most: int) -> KernelSpace:
    """``most`` of a kernel's combinations, the first included, each with every value of the common parameter."""
    plainest, *others = dict.fromkeys(_without(params, common) for params in kernel)
    kept = {plainest, *random.Random(0).sample(others, min(most - 1, len(others)))}
    return KernelSpace(kernel.name, [params for params in kernel if _without(params, common) in kept])


def _without(params: Any, common: str) -> frozenset:
    return frozenset((k, v) for k, v in params.items() if k != common)


def reduced(options: tuple[Option, ...], plans: list[str], most: int) -> list[Option]:
    """The options whose names contain one of ``plans``, with thinned kernels. Common kernels stay common."""
    kernels = {kernel: thinned(kernel, o.common, most) for o in options for kernel in o.kernels}
    return [
        replace(option, kernels=tuple(kernels[kernel] for kernel in option.kernels))
        for option in options
        if not plans or any(text in option.name for text in plans)
    ]


def candidates(design: Design, options: list[Option]) -> dict[Point, Candidate]:
    """The candidate of every point."""
    found = {}
    for number, option in enumerate(options):
        whole = next(n for n, o in enumerate(design.options) if o.name == option.name)
        for choice in option.choices():
            indices = (w.index(k[i]) for w, k, i in zip(design.options[whole].kernels, option.kernels, choice))
            found[Point(number, choice)] = design.candidate(Point(whole, tuple(indices)))
    return found


class Calls:
    """Candidates in this process, with the weights of one model and one set of inputs."""

    def __init__(self, problem: LoadedProblem, device: str) -> None:
        self._problem, self._device = problem, device
        torch.manual_seed(0)
        with torch.device(device):
            self.model = self._mode(problem.model())
            self.inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in problem.inputs()]
        self._expected = self._outputs(self.model)

    def load(self, candidate: Candidate) -> Callable[[], Any] | None:
        """A function that calls the candidate; ``None`` where it fails or is far from PyTorch."""
        namespace = ModuleType("candidate")
        try:
            exec(compile(candidate.source, "<candidate>", "exec"), namespace.__dict__)
            with torch.device("meta"):
                model = namespace.ModelNew(*self._problem.init_inputs())
            model = self._mode(model)
            state = {name: value.clone() if "running" in name or "num_" in name else value
                     for name, value in self.model.state_dict().items()}  # fmt: skip
            model.load_state_dict(state, assign=True)
            outputs = self._outputs(model)
        except Exception as error:
            print(f"{candidate.plan} {dict(candidate.params)}: {error}", file=sys.stderr)
            return None
        near = all((a - b).abs().max() <= _FAR * b.abs().max() for a, b in zip(outputs, self._expected, strict=True))
        return (lambda: model(*self.inputs)) if near else None

    def _mode(self, model: torch.nn.Module) -> torch.nn.Module:
        return model.train(self._problem.problem.mode == "train").requires_grad_(False)

    @torch.no_grad()
    def _outputs(self, model: torch.nn.Module) -> list[torch.Tensor]:
        found = model(*self.inputs)
        return [found] if isinstance(found, torch.Tensor) else list(found)


def timer(device: str) -> Callable[[Callable[[], Any]], float]:
    """A function that times one call, in milliseconds."""
    if device == "cpu":

        def on_cpu(call: Callable[[], Any]) -> float:
            started = time.perf_counter()
            call()
            return (time.perf_counter() - started) * 1e3

        return on_cpu
    flush = torch.ones(64 << 20, device=device)

    def on_gpu(call: Callable[[], Any]) -> float:
        flush.add_(1.0)
        return _gpu.milliseconds(call, _SLEEP_CYCLES)

    return on_gpu


@torch.no_grad()
def time_all(calls: dict[Point, Callable[[], Any]], device: str, rounds: int) -> dict[Point, list[float]]:
    """The milliseconds of each call in each round, after two rounds that are not counted."""
    once, samples, order = timer(device), {point: [] for point in calls}, list(calls)
    for number in range(rounds + 2):
        random.Random(number).shuffle(order)
        for point in order:
            ms = once(calls[point])
            if number >= 2:
                samples[point].append(ms)
    return samples


def summarised(samples: list[float]) -> float:
    """The median of the faster half of the samples, because other load only makes a call slower."""
    return statistics.median(sorted(samples)[: -(-len(samples) // 2)])


def document(options: list[Option], samples: dict[Point, list[float]]) -> dict[str, Any]:
    """The options with the milliseconds of their points, in the order of ``Option.choices``; ``null`` for a failure.

    ``noise`` is the median over the points of the relative difference between two halves of the rounds.
    """
    kernels = list(dict.fromkeys(kernel for option in options for kernel in option.kernels))

    def ms(point: Point) -> float | None:
        return float(f"{summarised(samples[point]):.4g}") if point in samples else None

    halves = [(summarised(s[::2]), summarised(s[1::2])) for s in samples.values()]
    return {
        "noise": round(statistics.median(abs(a - b) / min(a, b) for a, b in halves), 4),
        "common": options[0].common,
        "kernels": [
            {"name": k.name, "axes": list(k[0]), "combinations": [list(p.values()) for p in k]} for k in kernels
        ],
        "options": [
            {
                "name": option.name,
                "kernels": [kernels.index(kernel) for kernel in option.kernels],
                "ms": [ms(Point(number, choice)) for choice in option.choices()],
            }
            for number, option in enumerate(options)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("--mode")
    parser.add_argument("-D", dest="overrides", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plan", dest="plans", action="append", default=[])
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--count", action="store_true", help="print the number of points and exit")
    parser.add_argument("-o", dest="file", type=Path)
    asked = parser.parse_args()
    started = time.monotonic()
    problem = read_problem(asked.problem, dict(text.partition("=")[::2] for text in asked.overrides), asked.mode)
    with tempfile.TemporaryDirectory() as home, Evaluator(
        problem, device=asked.device, accuracy=Accuracy.FP32, home=Path(home), baselines=("eager",), notice=print
    ) as evaluator:
        loaded = replace(load(problem), problem=evaluator.problem)
        design = Design(evaluator.problem, captured(loaded), evaluator.hardware)
        options = reduced(design.options, asked.plans, asked.most)
        for option in options:
            print(f"{option.size:6} {' x '.join(str(len(k)) for k in option.kernels):12} {option.name}", flush=True)
        if asked.count:
            return
        made = candidates(design, options)
        builder = evaluator.builder()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            built = list(pool.map(builder.build, (c.source for c in made.values())))
        print(f"{len(built)} built after {time.monotonic() - started:.0f} s", flush=True)
        os.environ["TORCH_EXTENSIONS_DIR"] = str(builder.directory)
        calls = Calls(loaded, asked.device)
        loading = {point: calls.load(c) for (point, c), b in zip(made.items(), built) if b.ok}
        ready = {point: call for point, call in loading.items() if call is not None}
        print(f"{len(ready)} of {len(made)} are right after {time.monotonic() - started:.0f} s", flush=True)
        samples = time_all(ready, asked.device, asked.rounds)
    told = {"problem": evaluator.problem.title, "mode": str(evaluator.problem.mode), "rounds": asked.rounds}
    kept = {**told, "conditions": asdict(conditions()), **document(options, samples)}
    asked.file.write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{asked.file}: {asked.file.stat().st_size >> 10} KB, noise {kept['noise']:.2%}, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
