"""Writes the results of a benchmark: ``results/NAME.json`` and a table ``results/NAME.md``, with their conditions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kgen.devices import hardware

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"

Cell = str | int | float | None


@dataclass(frozen=True)
class Conditions:
    """Where and when a benchmark ran. A part that the machine does not have is an empty text."""

    date: str
    commit: str  #: ``KGEN_COMMIT`` where it is set; ``+`` marks uncommitted changes
    cpu: str
    cores: int
    gpu: str  #: with its driver's version
    torch: str
    compiler: str
    nvcc: str
    python: str


def conditions() -> Conditions:
    """The conditions of this process."""
    cpu = hardware.cpu()
    gpu = _first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    git = ("git", "-C", str(ROOT))
    commit = _first_line(*git, "rev-parse", "--short=12", "HEAD")
    changed = _first_line(*git, "status", "--porcelain", "--untracked-files=no", "--", "kgen", "problems")
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return Conditions(
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        commit=os.environ.get("KGEN_COMMIT") or commit + ("+" if changed else ""),
        cpu=f"{cpu.name} ({cpu.arch})",
        cores=cpu.threads,
        gpu=gpu,
        torch=torch,
        compiler=_first_line("g++", "--version"),
        nvcc=_last_line("nvcc", "--version"),
        python=sys.version.split()[0],
    )


def record(
    name: str, title: str, rows: Sequence[Mapping[str, Cell]], notes: str = "", where: Conditions | None = None
) -> Path:
    """Write ``rows``, whose keys are columns, under ``name`` and print the table. Returns the path of the Markdown file.

    ``notes`` describes the measurement, and ``where`` its conditions, by default those of this process. The table shows
    floats with four significant digits. The JSON has them in full.
    """
    where = where or conditions()
    RESULTS.mkdir(exist_ok=True)
    document = {"title": title, "notes": notes, "conditions": asdict(where), "rows": [dict(row) for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    text = "\n".join([f"# {title}", "", *([notes, ""] if notes else []), *_table(rows), "", _described(where), ""])
    path = RESULTS / f"{name}.md"
    path.write_text(text, encoding="utf-8")
    print(text)
    return path


def _table(rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return lines + ["| " + " | ".join(_shown(row.get(column)) for column in columns) + " |" for row in rows]


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _described(where: Conditions) -> str:
    shown = {key: value for key, value in asdict(where).items() if value}
    return "Measured with " + "; ".join(f"{key} {value}" for key, value in shown.items()) + "."


def _first_line(*command: str) -> str:
    return _output(command)[0]


def _last_line(*command: str) -> str:
    return _output(command)[-1]


def _output(command: Sequence[str]) -> list[str]:
    """The lines that ``command`` prints; one empty line where the command is missing or fails."""
    if shutil.which(command[0]) is None:
        return [""]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip().splitlines() or [""] if done.returncode == 0 else [""]
