"""Writes ``docs/adversarial-cases.md`` from the headers of the cases: ``python docs/make_cases.py``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "adversarial"))

from cases import CASES, DEFENCES, AdversarialCase  # noqa: E402

PAGE = Path(__file__).parent / "adversarial-cases.md"
_START = """# Adversarial test cases

Each file in `tests/adversarial/` is a cheat that kgen must refuse, or an honest file that looks like one and must pass.
This page lists them by the defence that they are for. `make test` runs the cases with a `*`, one cheat for each
defence; `make test-exhaustive` runs all. Cases named `cuda_` need a GPU.

Written by `docs/make_cases.py` from the headers of the files; a test fails when it is out of date.
"""


def render() -> str:
    """The page: a section for each defence."""
    return _START + "".join(f"\n## {_capital(name)}\n\n{text}\n\n{_table(name)}" for name, text in DEFENCES.items())


def _table(defence: str) -> str:
    rows = [_row(case) for case in CASES if case.defence == defence]
    return "".join(["| file | what it does | outcome |\n", "| --- | --- | --- |\n", *rows])


def _row(case: AdversarialCase) -> str:
    return f"| `{case.name}`{' *' if case.default else ''} | {case.title} | {case.outcome} |\n"


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
