"""Syntax trees are made by one thread at a time."""

from __future__ import annotations

import ast
import gc
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgen.problems import syntax

SOURCE = "x = [" + ", ".join(f"f({n})" for n in range(500)) + "]"


@pytest.fixture
def letting_others_in() -> Iterator[None]:
    """Whenever garbage is collected, which it is often, other threads get their turn."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(let_others_in)
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    yield
    gc.callbacks.remove(let_others_in)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def let_others_in(phase: str, info: dict[str, int]) -> None:
    sum(range(100))


def test_threads_may_parse_at_the_same_time(letting_others_in: None) -> None:
    trees: list[ast.Module] = []
    failures: list[BaseException] = []

    def parse() -> None:
        try:
            trees.extend(syntax.parse(SOURCE) for _ in range(4))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=parse) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(trees) == 16


def test_no_module_parses_on_its_own() -> None:
    package = Path(syntax.__file__).parent
    assert [file.name for file in package.rglob("*.py") if re.search(r"ast\.parse\(", file.read_text())] == ["syntax.py"]
