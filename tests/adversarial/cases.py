"""The adversarial cases: each is a complete ModelNew file whose docstring ends with what the runner reads.

    attacks: the line of the bar that it attacks (honest files: what looks suspicious)
    problem: a file in problems/, then sizes as name=value
    expect: the statuses that it may get
    mode: train or eval            (otherwise as constructed)
    gpu: yes                       (otherwise it runs on the CPU)
    label: a word that one of the evaluation's labels must have in it
    seconds: a shorter limit for validation and timing
    then: ok                       (an honest file, judged right after it, must still be ok)
    needs: walls                   (skipped where the system does not allow every wall)

Run as a program, this prints the rows of the table in docs/evaluator.md.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_KEYS = {"attacks", "problem", "expect", "mode", "gpu", "label", "seconds", "then", "needs"}


@dataclass(frozen=True)
class Setting:
    """What an evaluator is made for: cases that share it share an evaluator."""

    problem: str
    sizes: tuple[tuple[str, str], ...]
    mode: str | None
    device: str

    @property
    def path(self) -> Path:
        return HERE / "problems" / f"{self.problem}.py"


@dataclass(frozen=True)
class Case:
    """One file, and what must become of it."""

    path: Path
    title: str
    attacks: str
    setting: Setting
    statuses: tuple[str, ...]
    label: str | None
    seconds: float | None
    followed: bool
    needs_walls: bool

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def honest(self) -> bool:
        return self.path.parent.name == "honest"

    @property
    def outcome(self) -> str:
        """What becomes of it, for the table."""
        statuses = " or ".join(f"`{status}`" for status in self.statuses)
        if self.honest:
            return "passes"
        if self.statuses == ("ok",):
            return f"labelled `{self.label}`"
        return f"caught: {statuses}"


def read(path: Path) -> Case:
    """The case in the file at ``path``. Raises ``ValueError`` for a docstring that has not the form above."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    head, _, tail = text.rpartition("\n\n")
    fields = dict(line.split(": ", 1) for line in tail.splitlines())
    if not head or set(fields) - _KEYS or not {"attacks", "problem", "expect"} <= set(fields):
        raise ValueError(f"{path}: the docstring does not end as cases.py says")
    problem, *sizes = fields["problem"].split()
    setting = Setting(problem, tuple(tuple(size.split("=")) for size in sizes), fields.get("mode"),
                      "cuda" if fields.get("gpu") == "yes" else "cpu")
    seconds = float(fields["seconds"]) if "seconds" in fields else None
    return Case(path, head.partition("\n")[0], fields["attacks"], setting, tuple(fields["expect"].split(", ")),
                fields.get("label"), seconds, fields.get("then") == "ok", fields.get("needs") == "walls")


def table(cases: list[Case]) -> list[str]:
    """The rows of the table in the docs."""
    return [f"| `{case.name}` | {case.title} | {case.outcome} |" for case in cases]


CASES = [read(path) for folder in ("cheats", "honest") for path in sorted((HERE / folder).glob("*.py"))]

if __name__ == "__main__":
    print("\n".join(table(CASES)))
