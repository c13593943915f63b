"""Help texts, what starting loads, and the generated page."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import click
import pytest
from samples import Filled
from typed import kgen

from kgen.cli import main

ROOT = Path(__file__).parents[2]
LISTING = ("best", "compare", "doctor", "history", "problems", "prune", "scores", "show", "sql")
SELECTING = ("export-history", "history", "prune")


@pytest.mark.parametrize("name", main.commands)
def test_command_and_each_of_its_options_has_help(name: str) -> None:
    command = main.commands[name]
    assert command.help
    assert [option.name for option in command.params if isinstance(option, click.Option) and not option.help] == []


def test_bare_command_prints_its_help_as_an_answer() -> None:
    bare, asked = kgen(), kgen("--help")
    assert (bare.code, bare.err, bare.out) == (0, "", asked.out)


@pytest.mark.parametrize("name", main.commands)
def test_command_is_on_the_page_of_the_command_line(name: str) -> None:
    assert f"\n## `kgen {name}`\n" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("shell", "word"), [("bash", "1"), ("zsh", "1"), ("fish", "sw")])
def test_shell_completion_is_described_and_works(shell: str, word: str) -> None:
    assert f"_KGEN_COMPLETE={shell}_source" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    environment = _environment() | {"_KGEN_COMPLETE": f"{shell}_complete", "COMP_WORDS": "kgen sw", "COMP_CWORD": word}
    command = [sys.executable, "-c", "from kgen.cli import main; main(prog_name='kgen')"]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "sweep" in answer.stdout


@pytest.mark.parametrize("name", LISTING)
def test_listing_command_has_the_shared_options(name: str) -> None:
    assert {"as_json", "as_csv", "db", "limit"} <= {option.name for option in main.commands[name].params}


@pytest.mark.parametrize("name", SELECTING)
def test_command_that_selects_sweeps_has_every_filter(name: str) -> None:
    assert {"device", "status", "since", "before"} <= {option.name for option in main.commands[name].params}


def test_page_of_the_command_line_is_current() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))
    assert page["PAGE"].read_text(encoding="utf-8") == page["render"](), "run: python docs/make_cli.py"


@pytest.mark.parametrize("command", [["--help"], ["best", "made_up"], ["history"], ["show", "0"], ["problems"]])
def test_command_answers_without_torch(command: list[str], won: Filled) -> None:
    code = (
        "import sys; from kgen.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'torch', 'alembic'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, env=_environment())
    assert answer.returncode == 0


def test_help_loads_neither_the_database_nor_tables() -> None:
    code = "import sys, kgen.cli; sys.exit(bool({'sqlalchemy', 'rich', 'kgen.store'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], env=_environment()).returncode == 0


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
