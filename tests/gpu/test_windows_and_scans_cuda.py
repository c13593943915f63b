"""Windows and scans on a GPU: values over a covering set of their spaces, against float64."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any

import pytest
import torch
from models import design, module
from windows_and_scans import CASES, INPUTS, WIDE_INPUTS, problem

from kgen.codegen.render import Way, render
from kgen.codegen.template import tasks
from kgen.devices.hardware import gpu

pytestmark = pytest.mark.gpu

Values = dict[str, list[torch.Tensor]]


@pytest.fixture(scope="module", params=("narrow", "wide"))
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Values, Values, Values]:
    """Of each case the values of every candidate, of eager, and of eager in float64.

    A candidate has the next point of each kernel's covering set.
    """
    loaded = problem(WIDE_INPUTS if request.param == "wide" else INPUTS)
    of = design(loaded, gpu("cuda"))
    choice = of.choices[0]
    ((mode, plan),) = choice.plans
    points = zip_longest(*(space.covering_set() for space in choice.spaces))
    plainest = [next(space.allowed()) for space in choice.spaces]
    found = []
    for point in points:
        params = [p or plain for p, plain in zip(point, plainest)]
        found.append(render(loaded.problem, [Way(mode, plan, tuple(zip(tasks(plan, of.hardware), params)))], of.hardware, both_modes=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("builds")))
        with ThreadPoolExecutor() as pool:
            modules = list(pool.map(module, found))
    torch.manual_seed(0)
    model = loaded.model().cuda().eval()
    inputs = [x.cuda() for x in loaded.inputs()]
    with torch.no_grad():
        values = [run(made.ModelNew().cuda().eval(), model, inputs) for made in modules]
        eager = model(*inputs)
        exact = copy.deepcopy(model).double()(*(x.double() for x in inputs))
    return tuple(dict(zip(CASES, map(list, zip(*found)))) for found in (values, [eager], [exact]))


def run(new: Any, model: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    new.load_state_dict(model.state_dict())
    return new(*inputs)


@pytest.mark.parametrize("case", CASES)
def test_values_are_as_accurate_as_eager(case: str, results: tuple[Values, Values, Values]) -> None:
    values, (eager,), (exact,) = (found[case] for found in results)
    scale = exact.abs().max()
    allowed = 2.0 * (eager - exact).abs().max() / scale + 1e-6
    assert len(values) > 4
    assert max((value - exact).abs().max() / scale for value in values) <= allowed
