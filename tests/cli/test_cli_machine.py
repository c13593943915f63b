"""``kgen problems`` and ``kgen doctor``."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from samples import Filled
from typed import kgen

from kgen.cli import doctor

ROOT = Path(__file__).parents[2]


def test_problems_are_listed_with_their_sizes(filled: Filled) -> None:
    found = {row["problem"]: row["sizes"] for row in kgen("problems", "--json").json}
    assert found["made_up"] == {"batch_size": 8}


def test_doctor_as_json_names_what_is_missing_and_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    answer = kgen("doctor", "--json")
    [compiler] = [check for check in answer.json if check["name"] == "C++ compiler"]
    assert (answer.code, compiler["ok"]) == (1, False)
    assert "apt install g++" in compiler["remedy"]


def test_doctor_names_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("KGEN_HOME", str(folder / "file" / "runs"))
    [home] = [check for check in kgen("doctor", "--json").json if check["name"] == "runs"]
    assert (home["ok"], "KGEN_HOME" in home["remedy"]) == (False, True)


def test_doctor_lists_each_extra_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    found = {check["name"]: check for check in kgen("doctor", "--json").json}
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]) - {"test", "lint"}
    assert {name for name in found if name.startswith("kgen[")} == {f"kgen[{extra}]" for extra in extras}
    assert all(found[f"kgen[{extra}]"]["remedy"] == f"pip install 'kgen[{extra}]'" for extra in extras)
    assert not any(found[f"kgen[{extra}]"]["needed"] for extra in extras)
