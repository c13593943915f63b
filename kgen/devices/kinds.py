"""Kinds of device: what every stage must know of one, as a record; another kind is another entry.

How a kind's kernels are rendered is in ``kgen/templates/KIND``, how its processes run in the evaluator's driver.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of device.

    ``first`` is the device that the bare name stands for. An ``accelerator`` works beside the cores that give it work: it has
    memory and a clock of its own, streams, and products in reduced precision. ``launch_ms`` are the start and the end of one
    launch. ``budget`` is the limit of candidates where none is given, ``builds_ahead`` the builds at once for each candidate in
    judgement. ``final_seconds`` is the duration of a sweep's finals, ``timing_seconds`` that of a timing beside the baselines.
    ``build_cores`` are the cores of a node that the builds for one device take.
    """

    name: str
    first: str
    accelerator: bool
    launch_ms: float
    budget: int
    builds_ahead: int
    final_seconds: float
    timing_seconds: float
    build_cores: float


#: By their names. A launch is a small operator of torch on an H200, and a loop of OpenMP. Candidates that share a GPU take
#: longer each than candidates that share a processor.
KINDS = {
    of.name: of
    for of in (
        Kind("cuda", first="cuda:0", accelerator=True, launch_ms=0.0125, budget=96, builds_ahead=1, final_seconds=5.0,
             timing_seconds=20.0, build_cores=1.0),
        Kind("cpu", first="cpu", accelerator=False, launch_ms=0.01, budget=40, builds_ahead=3, final_seconds=12.0,
             timing_seconds=12.0, build_cores=0.0),
    )
}  # fmt: skip

#: The kind of the machine's own cores, on which a problem is captured first.
HOST = KINDS["cpu"]
