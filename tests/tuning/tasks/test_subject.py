"""The references and errors of kernel tasks in their worker."""

from __future__ import annotations

import pytest
import torch

from kgen.tuning.tasks import subject
from kgen.tuning.tasks.subject import TaskSubject


class Runtime:
    """A device whose cache was emptied so often."""

    freed = 0

    def free(self) -> None:
        self.freed += 1


def test_task_whose_reference_is_too_large_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(*of: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(subject, "evaluate", evaluate)
    made = TaskSubject.__new__(TaskSubject)
    made.device, made.inputs, made.tensors, made.runtime = "cpu", {}, {}, Runtime()
    assert made._evaluated(None, {}) is None and made.runtime.freed == 1


def test_error_in_parts_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = torch.linspace(-1.0, 3.0, 1000, dtype=torch.float64)
    x = (wanted + 1e-3 * wanted.sin()).float()
    whole = float((x.double() - wanted).norm() / wanted.norm())
    monkeypatch.setattr(subject, "_AT_ONCE", 64)
    assert subject._error(x, wanted) == pytest.approx(whole, rel=1e-12)
    assert subject._error(wanted, wanted) == 0.0
    x[999] = torch.inf
    assert subject._error(x, wanted) == torch.inf
