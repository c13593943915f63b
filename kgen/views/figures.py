"""What a candidate reached, derived when it is shown from what its sweep kept of the problem and the device."""

from __future__ import annotations

from kgen.evaluator.protocol import Accuracy
from kgen.roofline import Basis, Roofline, of
from kgen.store.results import CandidateDetail, Trial
from kgen.templates import arithmetic


def achieved(detail: CandidateDetail, trial: Trial, accuracy: Accuracy) -> Roofline | None:
    """The roofline of a candidate in one sweep; ``None`` where it was not timed, or the sweep kept no ceilings."""
    basis = Basis.read(detail.rooflines.get(trial.sweep))
    if basis is None or trial.median_ms is None:
        return None
    return of(basis, trial.median_ms, arithmetic(detail.device_type, trial.plan, trial.params, accuracy))
