"""Folders of optimised modules: written, read back, and refused where they do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from optimized_modules import Sweeps, sweeps
from torch import nn

import kgen
from kgen.errors import DiskError, FolderError, InputError
from kgen.optimized import folder as folders

__all__ = ["sweeps"]

X = torch.randn(4, 6)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": self.linear(x) + y}


class Other(Net):
    def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": x, "more": y}


@pytest.fixture
def saved(tmp_path: Path, sweeps: Sweeps) -> Path:
    fast = kgen.optimize(Net(), [X], kwargs={"y": X}, progress=False)
    assert fast.kgen.replaced
    kgen.save(fast, tmp_path / "net")
    return tmp_path / "net"


def changed(saved: Path, change: Any) -> None:
    manifest = json.loads((saved / folders.MANIFEST).read_text())
    change(manifest)
    (saved / folders.MANIFEST).write_text(json.dumps(manifest))


def test_a_folder_is_loaded_behind_another_module_of_its_kind(saved: Path) -> None:
    module = Net()
    fast = kgen.load(saved, module)
    with torch.no_grad():
        torch.testing.assert_close(fast(X, y=X), module(X, y=X))
        torch.testing.assert_close(fast(torch.ones(9, 6), y=torch.ones(9, 6)), module(torch.ones(9, 6), y=torch.ones(9, 6)))
    assert fast.kgen.calls == 2 and fast.kgen.speedup and not fast.kgen.tried


def test_a_loaded_module_is_saved_again(saved: Path, tmp_path: Path) -> None:
    kgen.save(kgen.load(saved, Net()), tmp_path / "again")
    mine, theirs = (json.loads((f / folders.MANIFEST).read_text()) for f in (saved, tmp_path / "again"))
    assert mine == theirs


@pytest.mark.parametrize("name", [".py", ".problem.py"])
def test_a_changed_file_is_refused_before_it_runs(name: str, saved: Path, tmp_path: Path) -> None:
    file = next(f for f in saved.iterdir() if f.name.endswith(name))
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{file.read_text()}")
    with pytest.raises(FolderError, match="its hash differs"):
        kgen.load(saved, Net())
    assert not (tmp_path / "ran").exists()


def test_names_outside_of_the_folder_are_refused(saved: Path) -> None:
    def outside(manifest: Any) -> None:
        one = manifest["parts"][0]["winners"][0]
        one["hashes"]["../x.py"] = one["hashes"].pop(one["file"])
        one["file"] = "../x.py"

    changed(saved, outside)
    with pytest.raises(FolderError, match="outside of the folder"):
        kgen.load(saved, Net())


@pytest.mark.parametrize("change", [lambda m: m.update(format=99), lambda m: m.pop("parts"), lambda m: m["parts"][0].pop("call")])
def test_a_folder_of_another_version_is_refused_in_one_line(change: Any, saved: Path) -> None:
    changed(saved, change)
    with pytest.raises(FolderError) as error:
        kgen.load(saved, Net())
    assert "\n" not in str(error.value) and "save it again" in str(error.value)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no optimised module"):
        kgen.load(tmp_path, Net())


@pytest.mark.parametrize("reason", ["it was made on another machine", "KeyError", "is patched", "another structure"])
def test_a_part_that_does_not_fit_runs_the_original(reason: str, saved: Path) -> None:
    module = Net()
    if reason == "KeyError":
        module = Net()
        module.linear = nn.Linear(6, 6, bias=False)
    elif reason == "is patched":
        module.forward = lambda x, *, y: {"sum": x}  # type: ignore[method-assign]
    elif reason == "another structure":
        module = Other()
    else:
        changed(saved, lambda m: m["parts"][0].update(place="another machine"))
    fast = kgen.load(saved, module)
    assert not fast.kgen.replaced and reason in fast.kgen.tried[0].reason
    with torch.no_grad():
        torch.testing.assert_close(fast(X, y=X), module(X, y=X))


def test_only_optimised_modules_are_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kgen.optimize"):
        kgen.save(Net(), tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_folder_that_cannot_be_made_is_named(saved: Path) -> None:
    with pytest.raises(DiskError, match="cannot be written"):
        kgen.save(kgen.load(saved, Net()), saved / folders.MANIFEST)
