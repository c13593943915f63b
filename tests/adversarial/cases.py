"""Adversarial cases: complete ``ModelNew`` files. The docstring of each ends with fields for the runner.

- defence: a name in ``DEFENCES``. It refuses a cheat, and must not refuse an honest file.
- problem: a file in problems/, then sizes as name=value.
- expect: the statuses that the file may get.
- default: yes. The default run has the case; other cases have the marker ``exhaustive``.
- accuracy: the class of accuracy. Without it, the class is fp32.
- mode: train or eval. Without it, the mode is as constructed.
- gpu: yes. Other cases run on the CPU.
- label: a word that one of the evaluation's labels must contain.
- seconds: a shorter limit for validation and timing.
- then: ok. An honest file, evaluated right after the case, must still be ok.
- needs: sandbox. The case is skipped where the system lacks a part of the sandbox.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_FIELDS = {"defence", "problem", "expect", "default", "accuracy", "mode", "gpu", "label", "seconds", "then", "needs"}

#: The checks and barriers against cheats, by name, in the order of the docs.
DEFENCES = {
    # Values
    "reference error": "The error against float64 is at most twice PyTorch's own in root mean square, four times in maximum.",
    "row and column limits": "Each row and each column of the output has an error limit of its own.",
    "value distributions": "Inputs also have other sizes, signs and offsets, zeros, outliers and nearly equal rows.",
    "batch sizes": "Other batch sizes than the problem's are tried, some of them drawn.",
    "non-finite values": "NaN and infinities in the inputs must come out where PyTorch has them.",
    "drawn weights": "Weights, biases, scales and statistics are drawn anew: none stays at its initial one or zero.",
    "changed weights": "Weights change between calls, by `load_state_dict`.",
    "state after the call": "Buffers after the call are compared with the reference's.",
    "moments of random operators": "Random outputs are compared with the reference's by their moments over many runs.",
    "repeated runs": "Two runs on the same inputs may not differ by more than the tolerance.",
    "integer outputs": "Integers must equal the reference's, except where rounding decides.",
    "fresh contents": "Inputs get new contents in the same memory, so a remembered result is wrong.",
    # Form of the output
    "output container": "The output has the reference's container, and the module is an `nn.Module`.",
    "output dtype and device": "Each output tensor has the reference's dtype and device.",
    "output shape": "Each output tensor has the reference's shape.",
    "plain tensors": "Tensor subclasses, container subclasses and tensors with methods of their own are refused.",
    # Memory
    "fences, reading": "Inputs lie between fences of NaN: a read outside a tensor makes the output wrong.",
    "fences, writing": "The fences around inputs are compared after the call.",
    "poisoned memory": "Fresh memory holds a poison, so an unwritten element is wrong.",
    "unchanged inputs": "Inputs are compared, bit by bit, with what they were before the call.",
    "unchanged inputs in timed calls": "Inputs of timed calls are compared, too.",
    "unchanged parameters": "Parameters and constants are compared with what they were before the call.",
    "aliased inputs": "An output may not share memory with an input, unless the problem's own does.",
    "aliased outputs": "An output may not share memory with an earlier output that is still held.",
    "aliased outputs in timed calls": "Outputs of timed calls are held, and checked for shared memory.",
    "unchanged outputs": "Earlier outputs are read again, and must be what they were.",
    "overlapping elements": "An output's elements may not share memory among themselves, unless the problem's own do.",
    # Processes
    "exceptions": "An exception, `SystemExit` among them, ends the evaluation with a status of its own.",
    "printable reasons": "The reason for a status is one printable line, whatever text an exception has.",
    "crashes": "A worker that ends without an answer has crashed, whatever its exit code and output.",
    "deadlines": "Each phase has a deadline, kept by the parent.",
    "memory limit": "A candidate's memory, with that of all that it starts, is limited.",
    "process limit": "The number of processes and threads is limited.",
    "disk limit": "Scratch folders have a size and a number of files.",
    "log limit": "A candidate's printed output is limited.",
    "process namespace": "A candidate sees no process but its own, and cannot signal, trace or read others.",
    "network namespace": "A candidate has no network, and no socket outside its folders.",
    "write rules": "A candidate can write in its own folders only.",
    "private files": "A candidate cannot read files that are closed to others.",
    "privileges": "A candidate has no capabilities, and cannot get any.",
    "clean-up": "Scratch folders are removed, whatever a candidate made of them.",
    "build sandbox": "Compilers run in the sandbox.",
    "sealed memory": "Inputs and weights reach a worker in sealed memory, which it cannot change for others.",
    "message format": "The parent refuses messages of a wrong form, size or depth.",
    "request numbers": "An answer carries the random number of its request.",
    "separate module": "The problem's `Model` is not in the candidate's process.",
    "separate oracle": "Expected values and the seeds of inputs are never in the candidate's process.",
    # Tamper detection
    "audit hook": "Python's audit hook reports frames, objects, signals, traces and other ways into the harness.",
    "replaced names": "Functions, classes and attributes that the harness uses are compared with what they were.",
    "replaced operators": "The dispatcher's kernels of the operators that the harness calls are compared.",
    "global switches": "Global switches of torch and of the processor are compared after each call.",
    "modes and hooks": "Dispatch modes, tracers, profilers and observers may not outlive a call.",
    "work after the call, threads": "The output is read again later, and threads that work on are reported.",
    "work after the call, processes": "A process that outlives a call is reported.",
    # Time
    "parent's clock": "The parent's clock brackets each call and must account for its sample.",
    "checked timed outputs": "Outputs of timed calls that are drawn afterwards are compared with PyTorch's.",
    "preparation time": "Preparing a call may take little longer than PyTorch's worker needs.",
    "late contents": "The contents of a timed call, or a part of them, arrive when the clock starts.",
    "sampled outputs": "Elements on each page of the output are read before the call's time is answered.",
    "cache flush": "The cache is flushed before each timed call, by memory that the candidate cannot reach.",
    "work between calls": "A worker that uses the processor while nothing is asked of it is reported.",
    "joined streams": "An event behind all streams must come with the last event of the call's own stream.",
    "fenced streams": "No stream of the process starts work before the first event of the call.",
    "driver's events": "Times come from the driver's own events, looked up before the candidate is loaded.",
    # Labels
    "library label": "A label says that a file has no kernel of its own.",
    "protocol label": "A label says that parameters have other names or shapes, so both models used one seed.",
    "label of own random numbers": "A label says that a candidate draws random numbers of its own.",
}  # fmt: skip


@dataclass(frozen=True)
class EvaluatorSetting:
    """The arguments of an evaluator: cases with the same setting share one."""

    problem: str
    sizes: tuple[tuple[str, str], ...]
    mode: str | None
    device: str
    accuracy: str

    @property
    def path(self) -> Path:
        return HERE / "problems" / f"{self.problem}.py"


@dataclass(frozen=True)
class AdversarialCase:
    """One file, and what must become of it."""

    path: Path
    title: str
    defence: str
    default: bool
    setting: EvaluatorSetting
    statuses: tuple[str, ...]
    label: str | None
    seconds: float | None
    followed: bool
    needs_sandbox: bool

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def honest(self) -> bool:
        return self.path.parent.name == "honest"

    @property
    def outcome(self) -> str:
        """The expected outcome, for the docs."""
        if self.honest:
            return "passes"
        if self.statuses == ("ok",):
            return f"labelled `{self.label}`"
        return "caught: " + " or ".join(f"`{status}`" for status in self.statuses)


def read(path: Path) -> AdversarialCase:
    """The case in the file at ``path``. Raises ``ValueError`` for a docstring that lacks the form above."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    head, _, tail = text.rpartition("\n\n")
    fields = dict(line.split(": ", 1) for line in tail.splitlines())
    if not head or set(fields) - _FIELDS or not {"defence", "problem", "expect"} <= set(fields):
        raise ValueError(f"{path}: the docstring does not end with the fields that cases.py lists")
    if fields["defence"] not in DEFENCES:
        raise ValueError(f"{path}: there is no defence {fields['defence']!r} in cases.py")
    problem, *sizes = fields["problem"].split()
    return AdversarialCase(
        path=path,
        title=head.partition("\n")[0],
        defence=fields["defence"],
        default=fields.get("default") == "yes",
        setting=EvaluatorSetting(problem, tuple(tuple(size.split("=")) for size in sizes), fields.get("mode"),
                                 "cuda" if fields.get("gpu") == "yes" else "cpu", fields.get("accuracy", "fp32")),
        statuses=tuple(fields["expect"].split(", ")),
        label=fields.get("label"),
        seconds=float(fields["seconds"]) if "seconds" in fields else None,
        followed=fields.get("then") == "ok",
        needs_sandbox=fields.get("needs") == "sandbox",
    )  # fmt: skip


CASES = [read(path) for folder in ("cheats", "honest") for path in sorted((HERE / folder).glob("*.py"))]
