"""Counters of the service, in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Mapping

#: The counters by name, with one line about each. Names of labels follow in brackets.
COUNTERS = {
    "kgen_accepted_total": "Evaluations that were accepted.",
    "kgen_refused_total": "Requests that were refused, by HTTP status.",
    "kgen_evaluations_total": "Evaluations that were answered, by status.",
    "kgen_reused_total": "Evaluations that were answered by an earlier verdict on the same candidate.",
    "kgen_retries_total": "Evaluations that were begun again after processes of the evaluator failed.",
    "kgen_evaluators_total": "Evaluators that were started, each with its baselines.",
    "kgen_judging_seconds_total": "Seconds that evaluations took, from their begin to their answer.",
}


class Metrics:
    """Counters that only grow. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, float]] = {name: defaultdict(float) for name in COUNTERS}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Increase a counter."""
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        with self._lock:
            self._values[name][f"{{{text}}}" if text else ""] += amount

    def total(self, name: str) -> float:
        """The sum of a counter over its labels."""
        with self._lock:
            return sum(self._values[name].values())

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All counters, and gauges by name with a line about each and their value now."""
        lines = []
        with self._lock:
            for name, about in COUNTERS.items():
                lines += [f"# HELP {name} {about}", f"# TYPE {name} counter"]
                lines += [
                    f"{name}{labels} {value:g}" for labels, value in self._values[name].items() or {"": 0.0}.items()
                ]
        for name, (about, value) in gauges.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"
