"""The page on Python: its blocks run, one after the other, with sweeps that end at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from optimized_modules import Sweeps, sweeps

from kgen.optimized import backend

__all__ = ["sweeps"]

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_blocks_of_the_page_run(
    sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backend, "_inductor", lambda graph, inputs: graph.forward)
    torch._dynamo.reset()
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    torch._dynamo.reset()
    assert sweeps.names == ["Block", "Sequential", "Sequential", "Focal", "Graph"]
    assert all(names[name].kgen.replaced for name in ("fast", "fast_network", "loss"))
    assert "gradients are wanted" in capsys.readouterr().out and (tmp_path / "block.kgen" / "manifest.json").is_file()
