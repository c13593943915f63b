"""The emulated device, one for all tests of a process: kernels of all builds are linked against the same library."""

from __future__ import annotations

import pytest
from emulated import Device


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("emulated"))
