"""The types of the public names, as a strict type checker sees them from a user's program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def checked(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """``file`` checked with the settings of pyproject.toml, which `make lint` uses too."""
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"), str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_program_that_uses_the_public_names_passes_a_strict_type_checker(tmp_path: Path) -> None:
    done = checked(ROOT / "tests" / "typed_program.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wrong_uses_of_public_names_are_found(tmp_path: Path) -> None:
    wrong = ["kgen.optimise(m, [x])", "kgen.optimize(m, [x], minutes='5')", "kgen.save(m, 3)", "kgen.KgenError.code", "kgen.load()"]
    body = "".join(f"    {line}\n" for line in wrong)
    (tmp_path / "program.py").write_text(f"import kgen\nimport torch\ndef use(m: torch.nn.Module, x: torch.Tensor) -> None:\n{body}")
    done = checked(tmp_path / "program.py", tmp_path)
    assert done.returncode == 1 and "Found 5 errors" in done.stdout, done.stdout + done.stderr
    assert all(f"program.py:{4 + number}: error" in done.stdout for number in range(len(wrong))), done.stdout
