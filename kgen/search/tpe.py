"""Tree-structured Parzen estimators, by Optuna."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kgen.candidate import ParamValue
from kgen.errors import InputError
from kgen.search.points import Option, Point
from kgen.search.strategy import FAILED, Strategy

if TYPE_CHECKING:
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import Trial

_PLAN = "plan"


class Tpe(Strategy):
    """Optuna's ``TPESampler`` over the plan and the parameters of its kernels, which have the kernels' names.

    Kernels that several plans have share what is learnt of them. Every plan is opened with each kernel's plainest
    combination.
    """

    name = "tpe"

    def __init__(self, options: Sequence[Option], seed: int = 0, first: Iterable[Point] = ()) -> None:
        super().__init__(options, seed, first)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=0)
            self._study = optuna.create_study(sampler=sampler)  # in memory
        self._optuna = optuna
        self._axes = [dict(self._categories(option)) for option in self.options]

    @classmethod
    def require(cls) -> None:
        if find_spec("optuna") is None:
            raise InputError("--strategy tpe needs Optuna: pip install 'kgen[optuna]'")

    def _categories(self, option: Option) -> Iterator[tuple[str, CategoricalDistribution]]:
        """What Optuna chooses of an option, by name."""
        distribution = self._optuna.distributions.CategoricalDistribution
        yield _PLAN, distribution([o.name for o in self.options])
        for kernel in option.kernels:
            for axis in kernel[0] if kernel else ():
                values = option.values if axis == option.common else dict.fromkeys(params[axis] for params in kernel)
                yield _named(option, kernel.name, axis), distribution(list(values))

    def _next(self) -> Point | None:
        return self.opening() or self._likely()

    def _likely(self) -> Point | None:
        """What Optuna would try, or what is nearest to it where that is not allowed, or was tried."""
        open_options = self.open_options()
        if not open_options:
            return None
        trial = self._study.ask()
        name = self._chosen(trial, _PLAN, 0)
        number = next(n for n, option in enumerate(self.options) if option.name == name)
        option = self.options[number]
        params = {axis: self._chosen(trial, axis, number) for axis in self._axes[number]}
        # It is told of the point that becomes of it as of any other one, when that was timed.
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        costs = [
            [sum(params[_named(option, kernel.name, a)] != v for a, v in of.items()) for of in kernel]
            for kernel in option.kernels
        ]
        found = self.cheapest(number, costs) if number in open_options else None
        return found[1] if found else self.draw(self.random.choice(open_options))

    def _chosen(self, trial: Trial, axis: str, option: int) -> ParamValue:
        return trial.suggest_categorical(axis, self._axes[option][axis].choices)

    def _learn(self, point: Point, ms: float) -> None:
        option = self.options[point.option]
        params: dict[str, ParamValue] = {_PLAN: option.name}
        for kernel, index in zip(option.kernels, point.choice):
            params |= {_named(option, kernel.name, axis): value for axis, value in kernel[index].items()}
        slowest = max((told for told in self.told.values() if told < FAILED), default=1.0)
        trial = self._optuna.trial.create_trial(
            params=params, distributions=self._axes[point.option], value=min(ms, slowest)
        )
        self._study.add_trial(trial)


def _named(option: Option, kernel: str, axis: str) -> str:
    return axis if axis == option.common else f"{kernel}.{axis}"
