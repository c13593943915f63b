"""Writes ``docs/adversarial-cases.md`` from the headers of the cases: ``python docs/make_cases.py``."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "adversarial"))

from cases import CASES, DEFENCES

PAGE = Path(__file__).parent / "adversarial-cases.md"
_START = """# Adversarial test cases

A case is a cheat that kgen must refuse, or an honest file that looks like one and must pass. Each defence has a file of
cases in `tests/adversarial/defences/`. `make test` runs the cases in the tables, one cheat for each defence. `make
test-exhaustive` also runs the cases below them, whose titles stand in the files. Cases named `cuda_` need a GPU.

Written by `docs/make_cases.py` from the headers of the cases; a test fails when it is out of date.
"""


def render() -> str:
    """The page: a section for each defence."""
    return _START + "".join(f"\n## {_capital(name)}\n\n{text}\n\n{_cases(name)}" for name, text in DEFENCES.items())


def _cases(defence: str) -> str:
    """A table of the cases that always run, and the names of the others."""
    of = [case for case in CASES if case.defence == defence]
    rows = [f"| `{case.name}` | {case.title} | {case.outcome} |\n" for case in of if case.default]
    table = "".join(["| case | what it does | outcome |\n", "| --- | --- | --- |\n", *rows])
    others = {kind: [f"`{case.name}`" for case in of if case.honest == honest and not case.default]
              for kind, honest in (("Other cheats", False), ("Honest files", True))}  # fmt: skip
    return table + "".join(f"\n{_filled(kind, names)}\n" for kind, names in others.items() if names)


def _filled(kind: str, names: list[str]) -> str:
    return textwrap.fill(f"{kind}: {', '.join(names)}.", 120, break_long_words=False, break_on_hyphens=False)


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
