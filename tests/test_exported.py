"""Exported programs as problems: their text computes what the module computes, under the same names."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.utils._pytree as pytree

import kgen
from kgen.codegen.module_source import module_source
from kgen.errors import CaptureError, DiskError, ProblemError
from kgen.problems import exported, live
from kgen.problems.problem import LoadedProblem, load, read_problem
from kgen.problems.problem_set import read_set


class Odd(nn.Module):
    """Everything at once that a text has to spell: regions, constants, tensors of no kind, effects, nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.layers[1].weight = self.layers[0].weight
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("places", torch.arange(5).expand(1, -1), persistent=False)
        self.scale = torch.tensor([2.0, 3.0, 2.0, 3.0, 2.0, 3.0])
        self.unused = nn.Parameter(torch.randn(3), requires_grad=False)

    def forward(self, xs: list[torch.Tensor], mask: torch.Tensor | None = None, *, factor: int = 2) -> Any:
        batch, length, width = xs[0].shape
        with torch.autocast("cpu", enabled=False):
            y = self.norm(self.layers[0](xs[0].float()).view(batch * length, width)).view(batch, length, width)
        y = self.layers[1](y) * self.scale + factor * self.places[:, :, None] + torch.tensor([1.0, 2.0] * 3)
        y += torch.arange(96.0).square().sum() * 1e-6
        if mask is not None:
            y = y.masked_fill(mask[:, :, None], float("-inf"))
        return {"y": y, "none": None, "sums": (y.relu().sum(1), 3)}


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Sized(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] < 5 else x * 3


def problem(module: nn.Module, *args: Any, **kwargs: Any) -> LoadedProblem:
    return load(live.problem_of(module, args, kwargs, type(module).__name__))


def odd() -> tuple[Odd, tuple[Any, ...]]:
    return Odd(), ([torch.randn(4, 5, 6)], torch.rand(4, 5) < 0.5)


@pytest.mark.parametrize(
    ("module", "args"),
    [
        odd(),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(16, 2)), (torch.randn(2, 3, 4, 4),)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), (torch.randn(4, 8),)),
        (nn.GRU(4, 5), (torch.randn(3, 2, 4),)),
        (nn.Embedding(50, 4), (torch.randint(0, 50, (3, 7)),)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_the_text_computes_what_the_module_does(module: nn.Module, args: tuple[Any, ...]) -> None:
    model = problem(module, *args).model()
    assert list(model.state_dict()) == list(module.state_dict())
    assert [(n, p.requires_grad) for n, p in model.named_parameters()] == [(n, p.requires_grad) for n, p in module.named_parameters()]
    model.load_state_dict(module.state_dict())
    if isinstance(module, Odd):  # it is in no state dict, and drawn like weights
        model.scale = module.scale
    with torch.no_grad():
        expected, found = module(*args), model(*args)
    assert pytree.tree_structure(expected) == pytree.tree_structure(found)
    for mine, theirs in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected)):
        torch.testing.assert_close(mine, theirs)
    for name, value in module.state_dict().items():  # also what forward has written
        torch.testing.assert_close(model.state_dict()[name], value)


def test_tied_weights_stay_one() -> None:
    model = problem(*odd()[:1], *odd()[1]).model()
    assert model.get_parameter("layers.0.weight") is model.get_parameter("layers.1.weight")


def test_the_batch_is_free() -> None:
    module = odd()[0].eval()
    model = problem(module, *odd()[1]).model()
    model.load_state_dict(module.state_dict())
    model.scale = module.scale
    others = [torch.randn(9, 5, 6)], torch.rand(9, 5) < 0.5
    torch.testing.assert_close(model(*others)["sums"][0], module(*others)["sums"][0])


def test_a_tensor_that_is_given_twice_stands_for_two() -> None:
    class Difference(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - 2 * y

    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(problem(Difference(), x, x).model()(x, y), x - 2 * y)


def test_a_batch_that_forward_asks_for_is_not_free() -> None:
    program = live.program_of(Sized(), (torch.randn(4, 3),), {})
    assert not program.range_constraints and "[4, 3]" in str(program.graph_module.code) or "sym_size" not in program.graph_module.code


def test_weights_are_drawn_with_the_statistics_of_the_saved_ones() -> None:
    module = nn.Linear(64, 64)
    nn.init.normal_(module.weight, 3.0, 0.25)
    nn.init.zeros_(module.bias)
    drawn = problem(module, torch.randn(2, 64)).model()
    assert abs(drawn.weight.mean() - 3.0) < 0.1 and 0.2 < drawn.weight.std() < 0.3
    assert not torch.equal(drawn.weight, module.weight) and not drawn.bias.any()


def test_another_draw_gives_the_same_text() -> None:
    module = nn.Linear(64, 64)
    texts = {live.problem_of(module, (torch.randn(8, 64),), {}, "linear").source for _ in range(3)}
    assert len(texts) == 1


def test_integers_stay_in_their_range() -> None:
    inputs = problem(nn.Embedding(1000, 4), torch.randint(0, 1000, (8, 32))).inputs()
    assert inputs[0].dtype == torch.int64 and inputs[0].min() >= 0 and inputs[0].max() < 1000


def test_masks_and_positions_keep_their_values() -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            return (x + mask)[:, :, places]

    mask, places = torch.full((64, 64), float("-inf")).triu(1), torch.arange(64)
    _, found, order = problem(Masked(), torch.randn(2, 64, 64), mask, places).inputs()
    assert torch.equal(found, mask) and torch.equal(order, places)


def test_layouts_are_kept() -> None:
    x = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    loaded = problem(nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last), x)
    assert loaded.inputs()[0].stride() == x.stride()
    assert loaded.model().weight.is_contiguous(memory_format=torch.channels_last)


def test_flags_of_torch_stand_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert "torch.backends.cudnn.allow_tf32 = False" in live.problem_of(nn.ReLU(), (torch.randn(2),), {}, "relu").source


def test_a_candidate_takes_the_text_over() -> None:
    source = live.problem_of(*odd()[:1], odd()[1], {}, "odd").source
    taken = module_source(source, "odd.pt2")
    assert taken.bases == "Part" and "forward" not in "".join(taken.class_body)


def test_a_saved_problem_is_read_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "linear.pt2"
    kgen.save_problem(nn.Linear(4, 4), [torch.randn(2, 4)], file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monkeypatch.setattr(exported, "_read_apart", lambda path: exported._main(path)["text"])
        read = read_problem(str(file), dtype="bfloat16")
    assert (read.name, read.file_name, read.dtype) == ("linear", "linear.pt2", "bfloat16")
    assert load(read).model().weight.dtype == torch.bfloat16
    monkeypatch.setattr(exported, "_read_apart", None)
    assert read_problem(str(file), dtype="bfloat16").source == read.source
    assert [member.problem.name for member in read_set([str(tmp_path)]) if member.problem] == ["linear"]


def test_a_file_that_is_no_program_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.pt2"
    file.write_bytes(b"no archive")
    answer = exported._main(file)
    assert answer.keys() == {"error"} and "\n" not in answer["error"] and str(file) in answer["error"]


def test_a_branch_on_values_is_refused() -> None:
    with pytest.raises(CaptureError, match="torch.export raised"):
        kgen.save_problem(Branches(), [torch.randn(3)], "never.pt2")
    assert not Path("never.pt2").exists()


def test_a_program_of_no_tensor_is_refused() -> None:
    class Number(nn.Module):
        def forward(self, n: int) -> torch.Tensor:
            return torch.ones(3) * n

    with pytest.raises(ProblemError, match="takes no tensor"):
        live.problem_of(Number(), (3,), {}, "number")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="cannot be written"):
        kgen.save_problem(nn.ReLU(), [torch.randn(3)], tmp_path / "missing" / "relu.pt2")
