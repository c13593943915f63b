"""The CUDA driver's errors, without a driver."""

from types import SimpleNamespace

import pytest
import torch

from kgen.evaluator.runtime import driver


@pytest.mark.parametrize(("code", "error"), [(2, torch.OutOfMemoryError), (1, driver.DriverError)])
def test_memory_that_ran_out_is_told_from_other_errors(monkeypatch, code, error):
    monkeypatch.setattr(driver, "_library", lambda: SimpleNamespace(cuMemCreate=lambda: code))
    with pytest.raises(error, match="cuMemCreate"):
        driver._call("cuMemCreate")
