"""Units: several variants of one task as one file, which is built at once.

class ModelNew            the task's weights are its parameters
    _library              the task's nodes as PyTorch runs them
    _v0, _v1, ...         one method for each variant, with a kernel of its own
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgen.candidate import Candidate
from kgen.codegen.render import Way, compiler_flags, decided, kernel_text, render, translation_unit
from kgen.problems.problem import Problem
from kgen.store.kernel_task import Variant
from kgen.tuning.tasks.task import KernelTask

_LIBRARY = "library"  #: the mode of a file that computes its task as PyTorch does


@dataclass(frozen=True)
class Unit:
    """A file with variants of one task; ``methods`` names the methods of its class, one for each variant.

    ``library`` is the method that computes the task as PyTorch does; empty where the library does not have all of it.
    """

    task: KernelTask
    variants: tuple[Variant, ...]
    methods: tuple[str, ...]
    library: str
    texts: tuple[str, ...]  #: the hash of each variant's text
    candidate: Candidate


def units(task: KernelTask, variants: Iterable[Variant], most: int) -> list[Unit]:
    """Files with at most ``most`` variants each. A file has one set of compiler flags.

    Raises :class:`kgen.errors.RenderError` where a template is wrong, and :class:`CaptureError`.
    """
    groups: dict[tuple[str, ...], list[Variant]] = {}
    for variant in variants:
        groups.setdefault(_flags(task, variant), []).append(variant)
    parts = (group[at : at + most] for group in groups.values() for at in range(0, len(group), most))
    return [_unit(task, part) for part in parts]


def text_hash(task: KernelTask, variant: Variant) -> str:
    """SHA-256 of the variant's text and its compiler's flags; empty of a library call, which has none.

    A result with another text than this is history. Raises what rendering raises.
    """
    if not variant.schedule:
        return ""
    text, rendering = kernel_text(task.of_schedule(variant.schedule), dict(variant.params))
    flags = compiler_flags(task.hardware, rendering.flags, rendering.specific)
    whole = "\0".join([translation_unit([text], rendering.symbols, task.hardware.device_type), *flags])
    return hashlib.sha256(whole.encode()).hexdigest()


def _flags(task: KernelTask, variant: Variant) -> tuple[str, ...]:
    return decided(task.of_schedule(variant.schedule), dict(variant.params)).flags if variant.schedule else ()


def _unit(task: KernelTask, variants: Sequence[Variant]) -> Unit:
    ways = [Way(_LIBRARY, task.control, ())] if task.control else []
    modes = [f"v{number}" if variant.schedule else _LIBRARY for number, variant in enumerate(variants)]
    for mode, variant in zip(modes, variants):
        if variant.schedule:
            of = task.of_schedule(variant.schedule, f"{mode}_")
            ways.append(Way(mode, of.plan, ((of, dict(variant.params)),)))
    names = {way.mode: f"_{way.mode}" if len(ways) > 1 else "_run" for way in ways}
    candidate = render(_problem(task), ways, task.hardware, both_modes=True)
    texts = tuple(text_hash(task, variant) for variant in variants)
    return Unit(task, tuple(variants), tuple(names[mode] for mode in modes), names.get(_LIBRARY, ""), texts, candidate)


def _problem(task: KernelTask) -> Problem:
    """The task as a problem's file, whose parameters and buffers are the task's weights."""
    lines = [
        "import torch",
        "import torch.nn as nn",
        "",
        "",
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
    ]
    for weight in task.graph.weights:
        empty = f"torch.empty({tuple(weight.type.shape)}, dtype=torch.{weight.type.dtype})"
        trained = weight.type.dtype in ("float32", "float16", "bfloat16", "float64") and not weight.buffer
        made = (
            f"self.{weight.path} = nn.Parameter({empty}, requires_grad=False)"
            if trained
            else f'self.register_buffer("{weight.path}", {empty})'
        )
        lines.append(f"        {made}")
    lines += ["", f"    def forward({task.graph.signature}):", "        raise NotImplementedError", ""]
    return Problem("task", "task.py", "\n".join(lines), (), "eval")
