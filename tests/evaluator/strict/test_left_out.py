"""Which kernels could be left out of a forward, with a graph of steps in Python in the place of a GPU's."""

import pytest
import torch

from kgen.evaluator.candidates.guards import bitwise
from kgen.evaluator.strict import left_out

STEPS = {
    "clear": lambda m: m["sums"].zero_(),
    "add": lambda m: m["sums"].add_(m["x"]),
    "repair": lambda m: m["sums"].copy_(m["x"].nan_to_num()) if m["x"].isnan().any() else None,
    "write": lambda m: m["y"].copy_(m["sums"]),
    "decoy": lambda m: m["z"].copy_(m["x"]),
    "void at::native::fill_kernel": lambda m: m["z"].zero_(),
}


def unread(contents, in_graph=tuple(STEPS), of_graph=("sums", "y", "z")):
    """Names of steps that may be left out of a graph of the steps ``in_graph``, for each of these contents of x. The graph's
    own memory is ``of_graph``."""
    memory = {name: torch.zeros(4) for name in ("x", "sums", "y", "z")}

    class Graph:
        kernels = dict.fromkeys(in_graph)

        def replay(self, without, fill):
            for name in of_graph:
                memory[name].view(torch.uint8).fill_(fill)
            return run([name for name in in_graph if name != without])

    def run(names=tuple(STEPS)):
        for name in names:
            STEPS[name](memory)
        return memory["y"]

    renewals = [lambda values=values: memory["x"].copy_(torch.tensor(values)) for values in contents]
    return left_out.unread(run, lambda call: Graph(), [name + "(float*)" for name in STEPS if "at::" not in name], renewals, dict, bitwise)


PLAIN, OTHER, SPECIAL = [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [1.0, float("nan"), 3.0, 4.0]


def test_a_kernel_whose_result_nothing_reads_is_found():
    assert unread([PLAIN, SPECIAL]) == ["decoy"]


def test_a_kernel_for_special_values_is_read_where_they_are():
    assert unread([PLAIN, OTHER]) == ["repair", "decoy"]


def test_a_result_in_memory_that_the_file_keeps_is_read():
    assert unread([PLAIN, OTHER, SPECIAL], of_graph=("z",)) == ["decoy"]


def test_a_graph_that_lacks_a_kernel_tells_nothing():
    with pytest.raises(left_out.GraphError):
        unread([PLAIN], ("clear", "write", "decoy"))


def test_a_kernel_that_a_graph_can_do_without_is_found():
    assert unread([PLAIN, SPECIAL], ("clear", "add", "repair", "write")) == ["decoy(float*)"]
