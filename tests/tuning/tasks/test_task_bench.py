"""The worker of kernel tasks, with real compilers and processes on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from networks import NETWORK, network

from kgen.candidate import Candidate, Trust
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import DevicePool
from kgen.protocol import Accuracy, Status
from kgen.store.kernel_task import THE_LIBRARY, Measured
from kgen.tuning.network import catalogue
from kgen.tuning.sweep import designed
from kgen.tuning.tasks.bench import Bench
from kgen.tuning.tasks.parts import Part
from kgen.tuning.tasks.unit import Unit, units


@dataclass(frozen=True)
class Shop:
    """An evaluator with the tasks of a network, and a bench on it."""

    evaluator: Evaluator
    parts: list[Part]
    bench: Bench

    def unit(self, operators: str, most: int = 2) -> Unit:
        """A file with variants of the kernel of these operators, which have the same flags, and with the library."""
        part = next(part for part in self.parts if part.operators == operators)
        variants = list(part.variants())
        first = dict(variants[0].params).get("vector_bits")
        alike = [v for v in variants if dict(v.params).get("vector_bits") == first][:most]
        return units(part.task, alike, 4)[0]

    def measure(self, unit: Unit) -> list[Measured]:
        return list(self.bench.measure(unit, self.evaluator.builder().build(unit.candidate.source)))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    home = tmp_path_factory.mktemp("bench")
    problem = network(NETWORK.replace("F.gelu(layer(x))", "F.gelu(layer(x)).cumsum(0)"))
    evaluator = Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=home, baselines=("eager",), trust=Trust.OWN)
    with DevicePool([evaluator], server=evaluator.server) as pool, Bench(evaluator, home / "scratch") as bench:
        design = designed(problem, pool)
        found = catalogue(design, evaluator.environment)
        yield Shop(evaluator, found.options[found.best] + found.options[design.control.option], bench)


def changed(unit: Unit, old: str, new: str) -> Unit:
    """The file with another text."""
    assert old in unit.candidate.source
    return replace(unit, candidate=Candidate(unit.candidate.source.replace(old, new), "", {}, "cpu"))


def test_variants_are_right_and_timed(shop: Shop) -> None:
    for measured in shop.measure(shop.unit("softmax")):
        assert measured.status is Status.OK and measured.cold_ms > 0 and measured.warm_ms > 0
        assert 0 < measured.error < measured.allowed


def test_library_is_timed_beside_its_own_kernel(shop: Shop) -> None:
    part = next(part for part in shop.parts if part.operators == "softmax")
    (unit,) = units(part.task, [THE_LIBRARY], 4)
    (measured,) = shop.measure(unit)
    assert measured.status is Status.OK and measured.variant == THE_LIBRARY and measured.text == ""


def test_call_that_stays_in_the_library_has_no_reference(shop: Shop) -> None:
    part = next(part for part in shop.parts if part.space is None and part.task.label == "gelu")
    (unit,) = units(part.task, list(part.variants()), 4)
    (measured,) = shop.measure(unit)
    assert (measured.status, measured.error) == (Status.OK, None)


def test_wrong_variant_is_refused_with_its_error(shop: Shop) -> None:
    unit = shop.unit("softmax")
    wrong = changed(unit, "def _v0(self, x0):", "def _v0(self, x0):\n        return x0 * 0.1\n\n    def _unused(self, x0):")
    first, second = shop.measure(wrong)
    assert first.status is Status.WRONG_VALUES and first.error > first.allowed and "is allowed" in first.reason
    assert second.status is Status.OK


def test_variant_that_ends_the_process_costs_itself(shop: Shop) -> None:
    unit = shop.unit("softmax")
    body = "def _v0(self, x0):\n        import os\n        os._exit(3)\n\n    def _unused(self, x0):"
    first, second = shop.measure(changed(unit, "def _v0(self, x0):", body))
    assert first.status is Status.CRASHED and "exit code 3" in first.reason
    assert second.status is Status.OK


def test_variant_of_a_packed_weight_is_right(shop: Shop) -> None:
    (measured, *_) = shop.measure(shop.unit("linear"))
    assert measured.status is Status.OK


def test_file_that_does_not_build_fails_each_of_its_variants(shop: Shop) -> None:
    found = shop.measure(changed(shop.unit("softmax"), "#include <cmath>", "#error no"))
    assert {measured.status for measured in found} == {Status.BUILD_ERROR} and found[0].reason
