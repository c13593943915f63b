"""The emulated device, one for all tests of a process: kernels of all builds are linked against the same library."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from emulated import Device
from models import quick_load_inline

from kgen.codegen import body


@pytest.fixture(scope="session")
def whole_device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """With the builds of all workers of a session in one folder: the device itself takes longest."""
    of_session = tmp_path_factory.getbasetemp().parent if os.environ.get("PYTEST_XDIST_WORKER") else tmp_path_factory.getbasetemp()
    folder = of_session / "emulated"
    folder.mkdir(exist_ok=True)
    return Device(folder)


@pytest.fixture
def device(whole_device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Candidates that are rendered for it allocate each temporary alone, so that each ends at a page that no one may touch."""
    monkeypatch.setattr(body, "FEWEST_PARTS", sys.maxsize)
    return whole_device


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
