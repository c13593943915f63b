"""The page about the compiler: its example runs, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kgen.compiler.operators.library import LEFT, left_to_the_library
from kgen.compiler.operators.table import BY_TARGET

PAGE = Path(__file__).parents[2] / "docs" / "compiler.md"


def test_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == PAGE.read_text().count("```python")
    for code, expected in blocks:
        exec(compile(code, str(PAGE), "exec"), namespace)
        assert capsys.readouterr().out == expected


def test_page_shows_the_table_of_what_stays_with_the_library() -> None:
    assert "\n".join(left_to_the_library()) in PAGE.read_text()


def test_no_operator_of_that_table_has_an_entry() -> None:
    names = {name for of in LEFT for name in of.operators}
    assert all(hasattr(torch.ops.aten, name) for name in names)
    assert {target.split(".")[1] for target in BY_TARGET} & names <= {"dropout"}  # one that drops nothing is an identity
