"""The health of a problem: whether its tolerance refuses answers that need no computation."""

from typing import TYPE_CHECKING, Any

import torch

from kgen.errors import ProblemError
from kgen.evaluator.correctness.distributions import Distribution, batch_size, slice_batch
from kgen.evaluator.correctness.tolerance import Expected, as_real
from kgen.evaluator.runtime.arena import tensors

if TYPE_CHECKING:
    from kgen.evaluator.correctness.oracle import Oracle

_TRIVIAL_ANSWERS = 4  # trivial answers by which the health of a problem is judged
_ANOTHER_SEED = "another seed's output"  # one of them
#: Inputs that are drawn when the output of another seed passes: a problem is healthy if one of them fails. The inputs
#: of the pool have lower numbers.
_FIRST_SEED, _MORE_SEEDS = 103, 3


def health(oracle: "Oracle") -> list[str]:
    """The trivial answers that pass in every test case."""
    given = [d for d in oracle.distributions if d.values == "given" and not d.shape_only]
    first = given[-1] if oracle.is_large else given[0]  # of large inputs, one with fewer rows
    others = {mode: _outputs_of_another_seed(oracle, first, mode) for mode in oracle.modes}
    passing: dict[str, bool] = {}  # by answer
    for name, mode in oracle.names():
        case = oracle.case(name, mode, "drawn", judged=True)
        oracle.widen(case)
        for number, expected in enumerate(case.expected):
            if not expected.name.startswith("output") or expected.eager is not None:
                continue  # NaN and infinities refuse trivial answers too easily
            other = {_ANOTHER_SEED: [others[mode][number]]} if case.distribution is first else {}
            for answer, values in (_trivial_answers(expected.exact, case.inputs) | other).items():
                if values and passing.setdefault(answer, True):
                    passing[answer] = any(expected.judge(value, oracle.accuracy)["ok"] for value in values)
                    if answer == _ANOTHER_SEED and passing[answer]:
                        passing[answer] = _passes_with_each_seed(oracle, expected, first, mode, number)
        if len(passing) == _TRIVIAL_ANSWERS and not any(passing.values()):
            break
    return [answer for answer, passes in passing.items() if passes]


def _passes_with_each_seed(
    oracle: "Oracle", expected: Expected, distribution: Distribution, mode: str, number: int
) -> bool:
    """Whether the output ``number`` of a few more seeds passes for ``expected``, too, for each of them. A single
    number, such as a loss, passes by chance: about once in 10,000 seeds in float32, and more often in half types."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + _MORE_SEEDS)
    outputs = (_outputs_of_another_seed(oracle, distribution, mode, seed)[number] for seed in seeds)
    return all(expected.judge(value, oracle.accuracy)["ok"] for value in outputs)


def _outputs_of_another_seed(
    oracle: "Oracle", distribution: Distribution, mode: str, seed: int | None = None
) -> list[torch.Tensor]:
    """The output for another input set: one of the pool, or one drawn with ``seed``. Large inputs have fewer rows in
    the pool, and other rows stand for them."""
    rows = oracle.rows_of(distribution)
    drawn = oracle.pool[1] if seed is None else oracle.get_inputs(seed)
    few = batch_size(drawn) < rows
    inputs = slice_batch(oracle.pool[0], rows, oracle.rows - rows) if few else slice_batch(drawn, rows)
    found = tensors(oracle.reference.eager(inputs, oracle.state(distribution, "drawn"), mode, 0)[0])
    for expected, value in zip(oracle.case(distribution.name, mode, "drawn", judged=True).expected, found):
        if as_real(value).shape != expected.exact.shape:
            raise ProblemError(
                f"{oracle.path}: the shape of what the model returns depends on the values of its inputs, "
                "which kgen does not judge: pad it to a fixed size"
            )
    return found


def _trivial_answers(exact: torch.Tensor, inputs: list[Any]) -> dict[str, list[torch.Tensor]]:
    """Values that need no computation, by name. The mean is left out for one element and for integers."""
    zeros = exact.new_zeros(()).expand(exact.shape)
    mean = [exact.mean().expand(exact.shape)] if exact.is_floating_point() and exact.numel() > 1 else []
    passed = [x.to(exact.device) for x in tensors(inputs) if x.shape == exact.shape and x.is_floating_point()]
    return {"zeros": [zeros], "the mean": mean, "the input passed through": passed or [zeros]}
