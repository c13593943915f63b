"""Writes ``docs/cli.md`` from the commands' own help: ``python docs/make_cli.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import click

from kgen.cli import main

PAGE = Path(__file__).parent / "cli.md"
_WIDTH = 100
_START = """# Command line

Written by `docs/make_cli.py` from `kgen --help`; a test fails when it is out of date.

Exit codes: 0 done; 1 the work ran and the answer is no (nothing beats PyTorch, no right candidate, a file that is not
right); 2 the input is wrong, and one line says why; 70 a bug in kgen; 130 Ctrl-C.

## Shell completion

One line in the start-up file of your shell completes commands and options:

- bash, `~/.bashrc`: `eval "$(_KGEN_COMPLETE=bash_source kgen)"`
- zsh, `~/.zshrc`: `eval "$(_KGEN_COMPLETE=zsh_source kgen)"`
- fish, `~/.config/fish/completions/kgen.fish`: `_KGEN_COMPLETE=fish_source kgen | source`
"""


def render() -> str:
    """The page: the help of each command."""
    settings = {**main.context_settings, "max_content_width": _WIDTH, "terminal_width": _WIDTH}
    context = click.Context(main, info_name="kgen", **settings)
    return _START + "".join(f"\n## `{name}`\n\n```\n{text}\n```\n" for name, text in _helps(context))


def _helps(context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, main.get_help(context)
    for name, command in sorted(main.commands.items()):
        inner = click.Context(command, info_name=name, parent=context, max_content_width=_WIDTH, terminal_width=_WIDTH)
        yield inner.command_path, command.get_help(inner)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
