"""Statements of SQL are compiled once in a process: each engine would compile each statement anew, for every test."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from kgen.store import connections


class _Compiled(dict[tuple[Any, ...], Any]):
    """Compiled statements of all engines that speak alike. An engine asks with its own dialect as the first part of a key."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        super().__setitem__(key[1:], compiled)


@contextmanager
def compiled_once() -> Iterator[None]:
    """Engines that kgen makes within the block share what they compile, those of each driver."""
    of: defaultdict[str, _Compiled] = defaultdict(_Compiled)

    def made(url: Any, **options: Any) -> Engine:
        engine = create_engine(url, **options)
        engine._compiled_cache = of[f"{engine.dialect.name}+{engine.dialect.driver}"]  # type: ignore[assignment]
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "create_engine", made)
        yield
