"""Kinds of device: what every stage must know of one, as a record; another kind is another entry.

A program asks a device through :mod:`kgen.devices.runtime`, and a process of the evaluator through the class that the
record names. A kind's kernels are rendered in ``kgen/templates/KIND``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen import plugins


@dataclass(frozen=True)
class Kind:
    """One kind of device.

    ``first`` is the device that the bare name stands for. An ``accelerator`` works beside the cores that give it work:
    it has memory and a clock of its own, streams, and products in reduced precision. ``launch_ms`` are the start and
    the end of one launch. ``budget`` is the limit of candidates where none is given, ``builds_ahead`` the builds at
    once for each candidate in judgement. ``final_seconds`` is the duration of a sweep's finals, ``timing_seconds`` that
    of a timing beside the baselines. ``build_cores`` are the cores of a node that the builds for one device take, with
    ``compilers`` beside the one for C++. ``facts`` of an environment make nodes of a cluster alike.

    A screening's block has at most ``screen_calls`` and should take ``block_seconds``: an accelerator's samples scatter
    less. A reduced batch has ``reduced_rows``. ``rounded_at_once`` elements are rounded in one go: a processor's cache
    holds them. No honest call moves its data faster than ``copy_margin`` times a copy's rate (small writes end in the
    cache). A service has ``evaluators`` that stay open: each keeps memory of its device. It judges in ``lanes``
    threads, for each evaluator on an accelerator, and for all of them on the cores.

    ``worker`` is the class of :mod:`kgen.evaluator.runtime.device` at work, ``module:name``. ``torch`` is the type of
    the torch device whose tensors kernels take, where it has another name than the kind.
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
    compilers: tuple[str, ...]
    facts: tuple[str, ...]
    screen_calls: int
    block_seconds: float
    reduced_rows: int
    rounded_at_once: int
    copy_margin: float
    lanes: int
    evaluators: int
    worker: str = "kgen.evaluator.runtime.device:Host"
    torch: str = ""


#: By their names. A launch is a small operator of torch on an H200, and a loop of OpenMP. Candidates that share a GPU
#: take longer each than candidates that share a processor.
KINDS = {
    of.name: of
    for of in (
        Kind(
            "cuda",
            first="cuda:0",
            accelerator=True,
            launch_ms=0.0125,
            budget=96,
            builds_ahead=1,
            final_seconds=5.0,
            timing_seconds=20.0,
            build_cores=1.0,
            compilers=("nvcc",),
            facts=("gpu", "driver", "nvcc", "compiler", "torch", "python", "cores"),
            screen_calls=4,
            block_seconds=0.015,
            reduced_rows=256,
            rounded_at_once=1 << 25,
            copy_margin=4.0,
            lanes=6,
            evaluators=1,
            worker="kgen.evaluator.runtime.device:Cuda",
        ),
        Kind(
            "cpu",
            first="cpu",
            accelerator=False,
            launch_ms=0.01,
            budget=40,
            builds_ahead=3,
            final_seconds=12.0,
            timing_seconds=12.0,
            build_cores=0.0,
            compilers=(),
            facts=("cpu", "instructions", "compiler", "torch", "python", "cores"),
            screen_calls=10,
            block_seconds=0.03,
            reduced_rows=64,
            rounded_at_once=1 << 17,
            copy_margin=10.0,
            lanes=1,
            evaluators=2,
        ),
    )
}

#: The kind of the machine's own cores, on which a problem is captured first.
HOST = KINDS["cpu"]


def kind_of(device: object) -> Kind:
    """The kind of a device such as ``cuda:1``, or of torch's object for it. Raises ``KeyError`` for a kind without an
    entry."""
    name = str(device).partition(":")[0]
    if name not in KINDS:
        plugins.load()  # it may come from outside
    return KINDS[name]


def torch_device(device: str) -> str:
    """The device as torch has it: ``cuda:1``; or the torch device with which a kind from outside computes."""
    return kind_of(device).torch or device
