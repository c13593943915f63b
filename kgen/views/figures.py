"""The rates of a candidate, derived from the work and the ceilings that its sweep stored."""

from __future__ import annotations

from kgen.codegen.registry import arithmetic
from kgen.codegen.roofline import Basis, Roofline, of
from kgen.protocol import Accuracy
from kgen.store.results import CandidateDetail, Trial


def achieved(detail: CandidateDetail, trial: Trial, accuracy: Accuracy) -> Roofline | None:
    """The roofline of a candidate in one sweep; ``None`` without a timing, or without stored ceilings."""
    basis = Basis.read(detail.rooflines.get(trial.sweep))
    if basis is None or trial.median_ms is None:
        return None
    return of(basis, trial.median_ms, arithmetic(detail.device_type, trial.plan_data, trial.params, accuracy))
