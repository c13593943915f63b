from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import Filled

from kgen.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kgen.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(str(path)) as opened:
        yield opened


@pytest.fixture
def filled(store: Store) -> Filled:
    return Filled(store)
