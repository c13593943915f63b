"""The emulated device, one for all tests of a process: kernels of all builds are linked against the same library."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import Device
from models import quick_load_inline


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("emulated"))


@pytest.fixture(scope="session")
def cpu_builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the quick builds of a process: a kernel that occurs again is built once."""
    return tmp_path_factory.mktemp("cpu_builds")


@pytest.fixture
def quick_builds(cpu_builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled at a low level of optimisation: their text is what matters."""
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", quick_load_inline(cpu_builds))


@pytest.fixture
def optimised_builds(cpu_builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled with the flags of their candidates, but not by way of PyTorch and ninja."""
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", quick_load_inline(cpu_builds, optimised=True))
