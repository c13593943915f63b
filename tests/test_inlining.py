"""Inlining: problems that import from files beside them become one text, and errors name the file that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen.errors import ProblemError
from kgen.problems.problem import load, read_problem

NET = '''\
"""A network."""

from __future__ import annotations

import math

import torch.nn as nn

from parts.block import Block

batch_size = 99
WIDTHS = [8]
WIDTHS.append(math.floor(4.0))


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.block = Block(n, WIDTHS[1])

    def forward(self, x):
        return self.block(x)
'''
BLOCK = """\
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        assert n > 0

    def forward(self, x):
        return self.linear(x)
"""
PROBLEM = """\
import torch
from net import (
    Net as Model,
)

batch_size = 4


def get_inputs():
    return [torch.randn(batch_size, 16)]


def get_init_inputs():
    return [16]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "parts" / "block.py").write_text(BLOCK)
    (tmp_path / "mine.py").write_text(PROBLEM)
    return tmp_path


def changed(folder: Path, name: str, before: str, after: str) -> Path:
    path = folder / name
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    return folder / "mine.py"


def test_definitions_of_files_beside_a_problem_are_taken_in(folder: Path) -> None:
    loaded = load(read_problem(str(folder / "mine.py"), {"batch_size": "5"}))
    assert loaded.model()(*loaded.inputs()).shape == (5, 4)


def test_what_is_not_needed_is_left_out(folder: Path) -> None:
    source = read_problem(str(folder / "mine.py")).source
    assert "batch_size = 99" not in source and "from net" not in source


def test_identity_holds_the_files_beside_a_problem(folder: Path) -> None:
    before = read_problem(str(folder / "mine.py")).id
    assert read_problem(str(changed(folder, "parts/block.py", "n > 0", "n > 1"))).id != before


def test_identity_is_that_of_a_copy_in_another_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    for name in ("mine.py", "net.py", "parts/block.py"):
        (other / name).parent.mkdir(exist_ok=True)
        (other / name).write_text((folder / name).read_text())
    assert read_problem(str(other / "mine.py")).id == read_problem(str(folder / "mine.py")).id


def test_problem_without_such_imports_is_left_as_it_is(folder: Path) -> None:
    text = PROBLEM.replace("from net import (\n    Net as Model,\n)", "from torch.nn import ReLU as Model")
    (folder / "mine.py").write_text(text)
    assert read_problem(str(folder / "mine.py")).source == text


def test_definition_that_two_imports_need_stands_once(folder: Path) -> None:
    changed(folder, "mine.py", "import torch\n", "import torch\nfrom parts.block import Block\n")
    assert read_problem(str(folder / "mine.py")).source.count("class Block") == 1


def test_error_in_a_file_beside_a_problem_names_its_line(folder: Path) -> None:
    path = changed(folder, "parts/block.py", "assert n > 0", "assert n < 0")
    with pytest.raises(ProblemError, match=r"parts/block\.py:8: Model\(\.\.\.\) raised AssertionError"):
        load(read_problem(str(path))).model()


def test_error_in_the_problem_itself_names_its_line(folder: Path) -> None:
    path = changed(folder, "mine.py", "return [16]", "return [16 // 0]")
    with pytest.raises(ProblemError, match=r"mine\.py:14: get_init_inputs\(\) raised ZeroDivisionError"):
        load(read_problem(str(path))).init_inputs()


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        ("mine.py", "Net as Model", "Nett as Model", r"mine\.py:2: net\.py has no Nett"),
        ("mine.py", "batch_size = 4", "batch_size = 4\nWIDTHS = 3", r"WIDTHS is defined here and in net\.py"),
        ("mine.py", "import torch\n", "import torch\nimport net\n", r"mine\.py:2: `import net` reads a file beside it"),
        ("net.py", "batch_size = 99", "batch_size = = 99", r"net\.py:11: syntax error"),
        ("parts/block.py", "import torch.nn as nn", "import torch.nn as nn\nfrom net import Net", r"block\.py:2: net\.py imports itself"),
    ],
)
def test_import_that_cannot_be_taken_in_is_one_clear_line(
    folder: Path, name: str, before: str, after: str, message: str
) -> None:
    with pytest.raises(ProblemError, match=message):
        read_problem(str(changed(folder, name, before, after)))


def test_every_name_may_be_imported_at_once(folder: Path) -> None:
    changed(folder, "mine.py", "from net import (\n    Net as Model,\n)", "from net import *\nModel = Net")
    changed(folder, "net.py", "batch_size = 99\n", "")
    assert load(read_problem(str(folder / "mine.py"))).model().block.linear.weight.shape == (4, 16)
