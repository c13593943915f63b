"""How plans are drawn, dates are read, and what the compiler tells becomes occupancy."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from samples import PLAN, candidate, evaluation

from kgen.candidate import COUNTABLE, Plan
from kgen.cli.listing import parse_moment
from kgen.devices.occupancy import occupancy, threads_of
from kgen.protocol import KernelResources
from kgen.tuning import events
from kgen.views import chain, plain, text

BOTH = Plan.of_modes([
    ("train", Plan.of_mode([("", ["linear"]), ("outer_reduction", ["batch_norm"])])),
    ("eval", Plan.of_mode([("contraction", ["linear"])])),
])  # fmt: skip
NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


def drawn(plan: Plan, **params: int) -> list[tuple[str, str, str]]:
    named = {name.replace("__", "."): value for name, value in params.items()}
    return [(link.operator, link.bracket, link.runs) for link in chain.links(plan, named)]


def test_combinations_that_are_not_counted_are_over_two_billion() -> None:
    assert [text.combinations(n) for n in (165, COUNTABLE - 1, COUNTABLE)] == ["165", "2147483646", "over 2 billion"]


def test_kernel_is_marked_on_each_of_its_operators() -> None:
    plan = Plan.of_mode([("", ["linear"]), ("inner_reduction", ["gelu", "mul", "softmax"])])
    assert drawn(plan, k0__block=256) == [
        ("linear", "", "library"),
        ("gelu", "┐", "k0 inner_reduction: block=256"),
        ("mul", "│", ""),
        ("softmax", "┘", ""),
    ]


def test_each_kernel_has_its_own_parameters() -> None:
    plan = Plan.of_mode([("pointwise", ["gelu"]), ("inner_reduction", ["softmax"])], ["fold_scale"])
    assert drawn(plan, k0__block=128, k1__block=256) == [
        ("gelu", "─", "k0 pointwise: block=128"),
        ("softmax", "─", "k1 inner_reduction: block=256"),
    ]


def test_plan_for_both_modes_is_drawn_mode_by_mode() -> None:
    assert drawn(BOTH, train__k0__block=64, eval__k0__products=3) == [
        ("linear", "", "library in train mode"),
        ("batch_norm", "─", "train.k0 outer_reduction: block=64"),
        ("linear", "─", "eval.k0 contraction: products=3"),
    ]


def test_file_from_outside_has_no_chain() -> None:
    assert drawn(Plan()) == []


def test_plan_is_counted_where_its_name_is_too_long() -> None:
    name = BOTH.name
    assert text.plan(name, BOTH) == "train: 1 kernel, 1 library call / eval: 1 kernel"
    assert text.plan(name, BOTH, len(name)) == name
    assert text.plan("a name that stands for no plan, and is cut at the end", Plan()) == "a name that stands for no plan, and is …"


def test_steps_of_a_plan_are_listed_beside_its_name() -> None:
    of = candidate()
    found = plain.event(events.Evaluated(1, of, evaluation(of)))
    assert found["plan"] == "linear(library) + inner_reduction[gelu]"
    assert found["steps"] == [
        {"mode": "", "schedule": "", "operators": ["linear"], "kernel": ""},
        {"mode": "", "schedule": "inner_reduction", "operators": ["gelu"], "kernel": "k0"},
    ]


def test_leaders_at_a_sweeps_end_have_their_steps_and_baselines_none() -> None:
    figures = (2.0, 1.5, 1.4, 1.6, 0.5, False, False)
    leaders = (events.Leader("a", candidate().plan, "", *figures, PLAN), events.Leader(None, "compile", "", *figures))
    found = plain.event(events.Finished("a", "finished", 1.0, (), leaders, "a", True))
    assert [leader["steps"] for leader in found["leaders"]] == [PLAN.to_json()["steps"], []]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-19T10:00+00:00", datetime(2026, 11, 19, 10, tzinfo=timezone.utc)),
        ("2026-11-19", datetime(2026, 11, 19).astimezone()),
        ("30m", NOW - timedelta(minutes=30)),
        ("12h", NOW - timedelta(hours=12)),
        ("7d", NOW - timedelta(days=7)),
        ("2w", NOW - timedelta(weeks=2)),
    ],
)
def test_moment_is_a_date_or_an_age(text: str, moment: datetime) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "7", "7y", "-1d", "2026-13-01"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text, NOW)


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "share"),
    [
        ("sm_90", 256, 32, 0, 1.0),  # eight blocks of eight warps
        ("sm_90", 1024, 64, 0, 0.5),  # registers of one block in two
        ("sm_90a", 384, 168, 0, 12 / 64),
        ("sm_80", 128, 16, 40 << 10, 16 / 64),  # four times 41 KB of shared memory in 164
        ("sm_86", 32, 16, 0, 16 / 48),  # no more than 16 blocks
        ("sm_75", 1024, 40, 0, 1.0),
        ("sm_90", 1024, 255, 0, 0.0),
    ],
)
def test_occupancy_is_what_the_scarcest_resource_leaves(
    arch: str, threads: int, registers: int, shared: int, share: float
) -> None:
    assert occupancy(arch, KernelResources("kernel", registers, shared, 0), threads) == share


def test_occupancy_of_an_unknown_device_is_unknown() -> None:
    assert occupancy("x86_64-avx2", KernelResources("kernel", 32, 0, 0), 256) is None


def test_threads_are_those_of_the_launch_bounds() -> None:
    source = (
        "constexpr int THREADS = 128;\n"
        "__global__ void __launch_bounds__(256) gelu_kernel(const float* x) {}\n"
        "__global__ void __launch_bounds__(THREADS, 2) product_kernel(const float* x) {}\n"
        "template <int N>\n__global__ void __launch_bounds__(N) other_kernel(const float* x) {}\n"
    )
    assert threads_of(source) == {"gelu_kernel": 256, "product_kernel": 128}


def test_csv_has_the_best_in_columns_and_lists_as_json() -> None:
    rows = [{"sweep": "a", "best": None, "counts": {"ok": 1}}, {"sweep": "b", "best": {"speedup": 1.5}, "counts": {}}]
    assert plain.csv(rows).splitlines() == ["sweep,counts,best.speedup", 'a,"{""ok"": 1}",', "b,{},1.5"]
