"""The devices of a sweep, whose processes start before its imports."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from kgen.evaluator.pool import DevicePool
from kgen.tuning import events, opening


class Device:
    """A device that counts its starts, and never gets ready."""

    device = "cpu"

    def __init__(self) -> None:
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        raise RuntimeError("not ready")

    def close(self) -> None:
        pass


def test_devices_that_were_opened_ahead_start_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = Device()
    monkeypatch.setattr(opening, "find_own_tools", lambda: None)
    monkeypatch.setattr(opening, "open_devices", lambda *_: DevicePool([device]))
    request: Any = None
    with opening.ahead(request, print) as opened, opened(request, print, 0.0) as devices:
        with suppress(RuntimeError):
            devices.wait()
    assert device.starts == 1


def test_opening_imports_neither_torch_nor_the_store() -> None:
    slow = "{'torch', 'sqlalchemy', 'sympy'}"
    code = f"import sys, kgen.tuning.opening; sys.exit(bool({slow} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_events_before_a_listener_are_kept_in_order() -> None:
    later, heard = events.Later(), []
    for text in "ab":
        later(events.Notice(text))
    later.tell(heard.append)
    later(events.Notice("c"))
    assert [event.text for event in heard] == ["a", "b", "c"]
