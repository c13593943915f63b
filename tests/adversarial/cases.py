"""Adversarial cases: files of candidates that try to deceive, or look as if they did.

``defences/`` has a file for each defence. A cell of it is a case: a cheat that the defence refuses, or an honest file that it
must not refuse. A cell has these lines:

- ``# %% cheat: NAME`` or ``# %% honest: NAME``.
- Its fields in comments, with semicolons between them: those below.
- A docstring.
- The candidate's code, or ``# like NAME`` and edits of that cell's code: lines with ``# -`` become those with ``# +``.

``Honest`` is the problem's own module, and the candidate of a cell without a ``ModelNew``. A line ``# include FILE`` stands
for the text of ``stubs/FILE``. Each candidate begins with the usual imports of torch.

- problem: a file in problems/, then sizes as name=value.
- expect: the statuses that the file may get. An honest file gets ok.
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
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_FIELDS = {"problem", "expect", "default", "accuracy", "mode", "gpu", "label", "seconds", "then", "needs"}
_MARK = re.compile(r"^# %% (cheat|honest): (\w+)\n", re.MULTILINE)
_HEAD = re.compile(r'(?P<fields>(?:# [^\n]*\n)+)(?P<docstring>"""(?P<title>[^\n]*?)(?:\n.*?)?"""\n)', re.DOTALL)
_LIKE = re.compile(r"# like (\w+)\n")
_INCLUDE = re.compile(r"^(?:#|//) include (\S+)$", re.MULTILINE)
_EDIT = re.compile(r"((?:# -.*\n)+)((?:# \+.*\n)*)")
_IMPORTS = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"

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
    "replacing label": "A label says that the kernels of a file replace no operator.",
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

    def file(self, name: str) -> str:
        """The problem's file, in which the module has another name."""
        return self.path.read_text(encoding="utf-8").replace("class Model(", f"class {name}(")

    def module(self, name: str) -> str:
        """The text of the problem's module, as a class of another name."""
        text = self.file(name)
        (of,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name)
        return str(ast.get_source_segment(text, of))


@dataclass(frozen=True)
class AdversarialCase:
    """One candidate, and what must become of it."""

    name: str
    title: str
    docstring: str
    code: str  # without what :attr:`source` adds
    defence: str
    honest: bool
    default: bool
    setting: EvaluatorSetting
    statuses: tuple[str, ...]
    label: str | None
    seconds: float | None
    followed: bool
    needs_sandbox: bool

    @property
    def source(self) -> str:
        """The text of the candidate."""
        code = _INCLUDE.sub(lambda line: (HERE / "stubs" / line[1]).read_text(encoding="utf-8").rstrip("\n"), self.code)
        base = self.setting.module("Honest") if "(Honest)" in code else ""
        whole = "" if "class ModelNew" in code else self.setting.module("ModelNew")
        return "\n\n".join(part.strip("\n") + "\n" for part in (self.docstring, _IMPORTS, base, code, whole) if part)

    @property
    def outcome(self) -> str:
        """The expected outcome, for the docs."""
        if self.honest:
            return "passes"
        if self.statuses == ("ok",):
            return f"labelled `{self.label}`"
        return "caught: " + " or ".join(f"`{status}`" for status in self.statuses)


def file_of(defence: str) -> Path:
    """The file with the cases of a defence."""
    return HERE / "defences" / (re.sub(r"\W+", "_", defence.replace("'", "")) + ".py")


def read(defence: str) -> list[AdversarialCase]:
    """The cases of a defence, in the order of its file. Raises ``ValueError`` for a text that lacks the form above."""
    _, *parts = _MARK.split(file_of(defence).read_text(encoding="utf-8"))
    found: list[AdversarialCase] = []
    for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3]):
        head = _HEAD.match(text)
        if head is None or "# %%" in text:
            raise ValueError(f"{defence}, {name}: the cell does not have the form that cases.py describes")
        code = text[head.end() :].strip("\n") + "\n"
        if like := _LIKE.match(code):
            code = _edited(next(case.code for case in found if case.name == like[1]), code[like.end() :])
        found.append(_case(defence, name, kind == "honest", head, code))
    return found


def _edited(code: str, edits: str) -> str:
    """The code with other lines. Raises ``ValueError`` for lines that it does not have exactly once."""
    if _EDIT.sub("", edits).strip():
        raise ValueError(f"not an edit:\n{edits}")
    for edit in _EDIT.finditer(edits):
        before, after = (re.sub(r"^# [-+]", "", lines, flags=re.MULTILINE) for lines in edit.groups())
        if code.count(before) != 1:
            raise ValueError(f"not in the code exactly once:\n{before}")
        code = code.replace(before, after)
    return code


def _case(defence: str, name: str, honest: bool, head: re.Match[str], code: str) -> AdversarialCase:
    listed = head["fields"].replace("\n#", "").removeprefix("# ").strip()
    fields = dict(field.split(": ", 1) for field in listed.split("; "))
    if set(fields) - _FIELDS or "problem" not in fields or ("expect" in fields) == honest:
        raise ValueError(f"{defence}, {name}: its fields are not those that cases.py lists")
    problem, *sizes = fields["problem"].split()
    return AdversarialCase(
        name=name,
        title=head["title"],
        docstring=head["docstring"],
        code=code,
        defence=defence,
        honest=honest,
        default=fields.get("default") == "yes",
        setting=EvaluatorSetting(problem, tuple(tuple(size.split("=")) for size in sizes), fields.get("mode"),
                                 "cuda" if fields.get("gpu") == "yes" else "cpu", fields.get("accuracy", "fp32")),
        statuses=tuple(fields.get("expect", "ok").split(", ")),
        label=fields.get("label"),
        seconds=float(fields["seconds"]) if "seconds" in fields else None,
        followed=fields.get("then") == "ok",
        needs_sandbox=fields.get("needs") == "sandbox",
    )  # fmt: skip


CASES = [case for defence in DEFENCES for case in read(defence)]
