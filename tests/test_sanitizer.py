"""The problems of ``benchmarks/sanitizer.py``: each has candidates of the schedule that it is for, without a device."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kgen.devices.hardware import for_arch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def sanitizer() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        spec = importlib.util.spec_from_file_location("sanitizer", BENCHMARKS / "sanitizer.py")
        assert spec is not None and spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "sanitizer", found)
        spec.loader.exec_module(found)
        return found


@pytest.mark.parametrize("firsts", [True, pytest.param(False, marks=pytest.mark.exhaustive)], ids=["firsts", "others"])
def test_each_problem_has_candidates_of_its_schedule(sanitizer: ModuleType, firsts: bool) -> None:
    """The first problem of each schedule always; the others are much like it."""
    hardware = for_arch("sm_90")
    first = {case.schedule: name for name, case in reversed(sanitizer.PROBLEMS.items())}
    for name, case in sanitizer.PROBLEMS.items():
        if (first[case.schedule] == name) is not firsts:
            continue
        found = list(sanitizer.points(name, hardware))
        assert 1 < len(found) <= 32, name
        assert all(f"{case.schedule}[" in of.options[point.option].name for of, point in found), name


@pytest.mark.parametrize(("name", "variant"), [("half_linear", "sm90"), ("half_product", "mma")])
def test_half_products_run_in_each_variant(sanitizer: ModuleType, name: str, variant: str) -> None:
    kernels = [of.options[point.option].kernels[0][point.choice[0]] for of, point in sanitizer.points(name, for_arch("sm_90"))]
    assert variant in {params["variant"] for params in kernels}
