"""Which device is taken, and where build tools are looked for."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from pathlib import Path

import pytest
import torch

from kgen.devices import runtime
from kgen.devices.machine import find_own_tools, keep_bytecode, resolve_device, resolve_devices
from kgen.errors import DeviceError


@pytest.mark.parametrize(
    ("asked", "gpus", "device"),
    [
        ("cpu", 2, "cpu"),
        (None, 0, "cpu"),
        (None, 2, "cuda"),
        ("cuda", 1, "cuda"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_device_is_the_one_asked_for_or_cuda_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, gpus: int, device: str
) -> None:
    pretend(monkeypatch, gpus)
    assert resolve_device(asked) == device


@pytest.mark.parametrize(
    ("asked", "gpus", "message"),
    [
        ("gpu", 1, "is no device"),
        ("cuda:", 1, "is no device"),
        ("cuda:x", 1, "is no device"),
        ("cpu:0", 1, "is no device"),
        ("cuda", 0, "torch sees no CUDA device here"),
        ("cuda:2", 2, "there are only 2 here"),
    ],
)
def test_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, asked: str, gpus: int, message: str
) -> None:
    pretend(monkeypatch, gpus)
    with pytest.raises(DeviceError, match=message):
        resolve_device(asked)


@pytest.mark.parametrize(
    ("asked", "devices"),
    [
        (None, ("cuda",)),
        ("cuda:1", ("cuda:1",)),
        ("cuda:0,cuda:2", ("cuda:0", "cuda:2")),
        ("cuda, cuda:1", ("cuda:0", "cuda:1")),
        ("cuda:all", ("cuda:0", "cuda:1", "cuda:2")),
    ],
)
def test_devices_of_a_sweep_are_one_or_several_gpus(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, devices: tuple[str, ...]
) -> None:
    pretend(monkeypatch, 3)
    assert resolve_devices(asked) == devices


@pytest.mark.parametrize(
    ("asked", "gpus", "message"),
    [
        ("cuda:0,cuda:0", 2, "each named once"),
        ("cuda,cuda:0", 2, "each named once"),
        ("cpu,cuda:0", 2, "several devices are CUDA devices"),
        ("cuda:0,cuda:x", 2, "is no device"),
        ("cuda:0,", 2, "several devices are CUDA devices"),
        ("cuda:all", 0, "torch sees no CUDA device here"),
    ],
)
def test_devices_that_do_not_serve_are_refused(
    monkeypatch: pytest.MonkeyPatch, asked: str, gpus: int, message: str
) -> None:
    pretend(monkeypatch, gpus)
    with pytest.raises(DeviceError, match=message):
        resolve_devices(asked)


def test_torch_is_not_asked_about_devices_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    assert resolve_devices("cuda:1") == ("cuda:1",)
    assert resolve_devices("cuda:0,cuda:2") == ("cuda:0", "cuda:2")


def pretend(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(runtime, "_has_driver", lambda: gpus > 0)
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def test_tools_installed_with_kgen_are_found_behind_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    for _ in range(2):
        find_own_tools()
    assert os.environ["PATH"].split(os.pathsep) == ["/usr/bin", str(Path(sys.executable).parent)]


@pytest.mark.parametrize(
    ("beside", "forbidden", "kept"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_bytecode_is_kept_where_torch_came_without_and_none_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: bool, forbidden: bool, kept: bool
) -> None:
    package = tmp_path / "torch" / "__init__.py"
    package.parent.mkdir()
    package.write_text("")
    if beside:
        py_compile.compile(str(package), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    spec = importlib.util.spec_from_file_location("torch", package)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    keep_bytecode(tmp_path / "kept")
    expected = str(tmp_path / "kept") if kept else None
    assert (sys.pycache_prefix, os.environ["PYTHONPYCACHEPREFIX"]) == (expected, expected or "")
    assert sys.dont_write_bytecode == (forbidden and not kept)
