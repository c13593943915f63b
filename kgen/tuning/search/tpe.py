"""Tree-structured Parzen estimators of Optuna."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from importlib.util import find_spec

from kgen.candidate import ParamValue
from kgen.errors import InputError
from kgen.tuning.search.points import KernelSpace, Option, Point, distinct_kernels
from kgen.tuning.search.strategy import FAILED, Strategy

_PLAN = "plan"  # Optuna's name for the option


class Tpe(Strategy):
    """Optuna's ``TPESampler`` over the plan and the parameters of its kernels.

    Plans share the results of common kernels. The first points are every plan with each kernel's first combination.
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
        self._labels = {kernel: f"{n} {kernel.name}" for n, kernel in enumerate(distinct_kernels(self.options))}
        self._values: dict[str, list[ParamValue]] = {_PLAN: list(range(len(self.options)))}
        for option in self.options:
            for kernel in option.kernels:
                for params in kernel:
                    for axis, value in params.items():
                        values = self._values.setdefault(self._label(option, kernel, axis), [])
                        if value not in values:
                            values.append(value)

    @classmethod
    def require(cls) -> None:
        if find_spec("optuna") is None:
            raise InputError("--strategy tpe needs Optuna: pip install 'kgen[optuna]'")

    def _label(self, option: Option, kernel: KernelSpace, axis: str) -> str:
        """Optuna's name for a parameter of a kernel; a common parameter has one name for all kernels."""
        return axis if axis == option.common else f"{self._labels[kernel]}.{axis}"

    def _next(self) -> Point | None:
        return self.opening() or self._likely()

    def _likely(self) -> Point | None:
        """Optuna's suggestion, or the nearest new point where that is not allowed or was tried."""
        open_options = self.open_options()
        if not open_options:
            return None
        trial = self._study.ask()
        number = trial.suggest_categorical(_PLAN, self._values[_PLAN])
        option = self.options[number]
        axes = {self._label(option, kernel, axis) for kernel in option.kernels for axis in kernel[0]}
        suggested = {axis: trial.suggest_categorical(axis, self._values[axis]) for axis in sorted(axes)}
        # The suggestion may become another point. That point is told when it was timed.
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        costs = [
            [sum(suggested[self._label(option, kernel, axis)] != v for axis, v in params.items()) for params in kernel]
            for kernel in option.kernels
        ]
        found = self.cheapest(number, costs) if number in open_options else None
        return found[1] if found else self.draw(self.random.choice(open_options))

    def _learn(self, point: Point, ms: float) -> None:
        option = self.options[point.option]
        params: dict[str, ParamValue] = {_PLAN: point.option}
        for kernel, index in zip(option.kernels, point.choice):
            params |= {self._label(option, kernel, axis): value for axis, value in kernel[index].items()}
        distribution = self._optuna.distributions.CategoricalDistribution
        distributions = {axis: distribution(self._values[axis]) for axis in params}
        slowest = max((told for told in self.told.values() if told < FAILED), default=1.0)
        create = self._optuna.trial.create_trial
        self._study.add_trial(create(params=params, distributions=distributions, value=min(ms, slowest)))
