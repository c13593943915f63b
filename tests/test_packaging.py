import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (path,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(path).namelist())


def test_wheel_holds_every_file_of_the_package(wheel: set[str]) -> None:
    here = {str(path.relative_to(ROOT)) for path in (ROOT / "kgen").rglob("*") if path.is_file()}
    assert {name for name in here if "__pycache__" not in name} <= wheel


def test_wheel_holds_the_problems_where_bare_names_are_looked_up(wheel: set[str]) -> None:
    problems = {f"kgen/problems/files/{path.name}" for path in (ROOT / "problems").glob("*.py")}
    assert problems and problems <= wheel


def test_wheel_holds_the_page_on_the_schema(wheel: set[str]) -> None:
    assert "kgen/schema.md" in wheel


def test_wheel_holds_nothing_compiled(wheel: set[str]) -> None:
    assert not [name for name in wheel if name.endswith((".pyc", ".so", ".o"))]


def test_tested_versions_are_within_the_declared_ranges() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    tested = {pin.name.lower(): next(iter(pin.specifier)).version for pin in pins}
    for text in project["dependencies"] + project["optional-dependencies"]["test"] + project["optional-dependencies"]["lint"]:
        requirement = Requirement(text)
        assert tested[requirement.name] in requirement.specifier, text
