"""The products of the library in a forward, and how exactly cuDNN multiplies in them."""

from contextlib import suppress
from typing import Any, Collection, Mapping, Sequence

from kgen.evaluator.correctness import cudnn
from kgen.evaluator.correctness.distributions import batch_size, slice_batch
from kgen.evaluator.correctness.reference import Reference, State
from kgen.protocol import LibraryProduct


class Products:
    """The calls of cuDNN in a forward on the inputs ``given`` with the weights ``state``, by mode."""

    def __init__(
        self, reference: Reference, calls: Mapping[str, Sequence[cudnn.Call]], given: list[Any], state: State
    ) -> None:
        self._reference, self._calls, self._given, self._state = reference, calls, given, state
        self._rows = batch_size(given)
        self._errors_of_calls: dict[tuple[str, int], tuple[float, ...]] = {}  # by mode and rows

    def errors(self, mode: str, rows: int) -> tuple[float, ...]:
        """The error of each call of cuDNN in a forward of ``rows`` rows, on random operands; none where TF32 is off."""
        if (mode, rows) not in self._errors_of_calls:
            calls = self._calls[mode]
            if calls and rows != self._rows:
                calls = self._reference.looked_at(slice_batch(self._given, rows), self._state, mode)[2].calls
            self._errors_of_calls[mode, rows] = self._reference.products(calls)
        return self._errors_of_calls[mode, rows]

    def listed(self, batches: Collection[int]) -> list[LibraryProduct]:
        """The calls of cuDNN, with their errors at these batch sizes. A batch that the problem refuses
        tells nothing."""
        found: list[LibraryProduct] = []
        for mode, calls in self._calls.items():
            errors = {}
            for rows in batches if calls and self._reference.allows_tf32 else ():
                with suppress(RuntimeError, ValueError, TypeError):
                    errors[rows] = self.errors(mode, rows)
            found += cudnn.products(calls, errors) if errors else ()
        return found
