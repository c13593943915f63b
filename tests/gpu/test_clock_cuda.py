"""What times calls on a GPU: the driver's events, and contents that come in the stream."""

import pytest
import torch

from kgen.evaluator.correctness.distributions import mixtures
from kgen.evaluator.runtime.fenced_clock import FencedClock

pytestmark = pytest.mark.gpu
MILLISECOND = 2_000_000  #: cycles, at most


@pytest.fixture
def clock():
    torch.ones(1, device="cuda").add_(1)
    return FencedClock(torch.cuda.current_device())


def test_a_stream_takes_what_is_put_into_it(clock):
    torch.cuda._sleep(MILLISECOND)
    clock.begin()
    torch.cuda._sleep(2 * MILLISECOND)
    found = clock.end()
    assert 2e6 <= found["ns"] < 8e6 and not found["exposed"] and found["launch_ns"] < 1e6 and found["behind_ns"] < 1e5


@pytest.mark.parametrize("queued", [0, 4 * MILLISECOND])
def test_work_that_the_stream_does_not_wait_for_is_behind_it(clock, queued):
    side = torch.cuda.Stream()
    torch.cuda._sleep(queued)
    clock.begin()
    with torch.cuda.stream(side):
        torch.cuda._sleep(2 * MILLISECOND)
    while not queued and not torch.cuda.current_stream().query():
        pass  # until the clock began, when launches show
    found = clock.end()
    assert found["exposed"] is not bool(queued)
    assert found["ns"] < 1e6 < found["behind_ns"]


def test_nothing_is_behind_a_stream_that_waited_where_launches_show(clock):
    side = torch.cuda.Stream()
    clock.begin()
    while not torch.cuda.current_stream().query():
        pass
    with torch.cuda.stream(side):
        torch.cuda._sleep(MILLISECOND)
    torch.cuda.current_stream().wait_stream(side)
    found = clock.end()
    assert found["ns"] >= 9e5 and found["behind_ns"] < 2e3


@pytest.mark.parametrize("kind", ["many in a row", "few in a row", "permutations", "a permutation", "offsets",
                                  "a number"])
def test_contents_come_in_the_stream_and_are_those_of_the_cpu(kind):
    make = {"many in a row": lambda: torch.randn(64, 100), "few in a row": lambda: torch.randn(64, 3),
            "permutations": lambda: torch.stack([torch.randperm(40) for _ in range(8)]),
            "a permutation": lambda: torch.randperm(40), "offsets": lambda: torch.arange(0, 96, 3),
            "a number": lambda: torch.randn(())}[kind]
    pool = [[make()] for _ in range(4)]
    there = [[x.cuda() for x in inputs] for inputs in pool]
    for key in range(5):
        queued = key > 0  # the first time, kernels are loaded
        here, (buffer,) = torch.zeros_like(pool[0][0]), (torch.zeros_like(there[0][0]),)
        for content in mixtures([here], pool, key):
            content.fill()
        contents = [content.pinned() for content in mixtures([buffer], there, key)]
        torch.cuda._sleep(20 * MILLISECOND * queued)
        for content in contents:
            content.fill()
        assert not queued or not torch.cuda.current_stream().query()  # nobody waited
        assert torch.equal(buffer.cpu(), here)
