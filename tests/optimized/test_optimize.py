"""Optimised modules: what they share with the module that came in, which calls run a winner, and which the original."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest
import torch
from optimized_modules import FASTER, Sweeps, sweeps
from torch import nn

import kgen
from kgen.errors import DeviceError, InputError, KgenError
from kgen.optimized import optimize, searching, trial
from kgen.optimized.dispatch import ARGUMENTS, GRADIENTS, SHAPES
from kgen.optimized.fingerprint import fingerprint
from kgen.optimized.found import Options
from kgen.protocol.statistics import Interval
from kgen.store import Database, modules

__all__ = ["sweeps"]


class Block(nn.Module):
    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.5)
        self.config = {"scale": 3.0}

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, shift: float = 0.0) -> torch.Tensor:
        y = self.drop(self.linear(self.norm(x))) * self.config["scale"] * self.factor + shift
        return y if mask is None else y.masked_fill(mask, 0.0)


class Held(nn.Module):
    """Holds blocks behind a branch that export refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x) if x.sum() < 1e9 else x
        return x


X = torch.randn(4, 3, 8)
KEEP = optimize._keep


def optimized(module: nn.Module, *args: Any, **more: Any) -> Any:
    return kgen.optimize(module, list(args) or [X], progress=False, **more)


@pytest.fixture
def module() -> Block:
    return Block().eval()


@pytest.fixture
def fast(module: Block, sweeps: Sweeps) -> Any:
    found = optimized(module)
    assert found.kgen.replaced
    return found


def check(fast: Any, module: nn.Module, calls: int = 1, *args: Any, **kwargs: Any) -> None:
    """Both have the same results, and so many calls ran a winner."""
    before = fast.kgen.calls
    with torch.no_grad():
        torch.testing.assert_close(fast(*(args or (X,)), **kwargs), module(*(args or (X,)), **kwargs))
    assert fast.kgen.calls - before == calls


def test_the_result_has_class_tensors_and_state_of_the_module(fast: Any, module: Block) -> None:
    assert isinstance(fast, Block) and type(fast).__name__ == "Block" and fast is not module
    assert list(fast.state_dict()) == list(module.state_dict())
    assert all(a is b for a, b in zip(fast.parameters(), module.parameters(), strict=True))
    assert "kgen" not in vars(module) and type(module) is Block


def test_a_call_like_the_recorded_one_runs_the_winner(fast: Any, module: Block) -> None:
    check(fast, module)
    with torch.no_grad():
        torch.testing.assert_close(fast(x=X), module(x=X))
    assert fast.kgen.calls == 2
    check(fast, module, 1, X, None, shift=0.0)
    check(fast, module, 1, torch.randn(9, 3, 8))  # the batch is free


@pytest.mark.parametrize(
    ("reason", "call"),
    [
        (SHAPES, lambda fast, module: check(fast, module, 0, torch.randn(4, 5, 8))),
        (SHAPES, lambda fast, module: check(fast, module, 0, torch.randn(3, 4, 8).transpose(0, 1))),
        (ARGUMENTS, lambda fast, module: check(fast, module, 0, X, torch.ones(4, 3, 8, dtype=torch.bool))),
        (ARGUMENTS, lambda fast, module: check(fast, module, 0, X, shift=1.0)),
        ("train() or eval() was called", lambda fast, module: (fast.train(), fast(X))),
        ("train() or eval() was called", lambda fast, module: (fast.norm.train(), fast(X))),
        ("a submodule has hooks", lambda fast, module: (fast.linear.register_forward_hook(lambda *_: None), fast(X))),
        ("an attribute was changed", lambda fast, module: (setattr(fast, "factor", 3.0), fast(X))),
        ("an object that it holds was changed", lambda fast, module: (fast.config.update(scale=4.0), fast(X))),
        ("a forward was patched", lambda fast, module: (setattr(fast.linear, "forward", lambda x: x), fast(X))),
        ("its submodules were changed", lambda fast, module: (setattr(fast, "drop", nn.Identity()), fast(X))),
        ("its tensors have other shapes, dtypes or devices", lambda fast, module: (fast.double(), fast(X.double()))),
        ("torch.func transforms it", lambda fast, module: torch.func.vmap(fast)(X[None])),
        (GRADIENTS, lambda fast, module: torch.enable_grad()(fast)(X)),
    ],
)  # fmt: skip
def test_another_call_runs_the_original(reason: str, call: Any, fast: Any, module: Block) -> None:
    with torch.no_grad():
        call(fast, module)
    assert (fast.kgen.calls, fast.kgen.fallbacks) == (0, {reason: 1})


def test_autocast_and_modes_run_the_original(fast: Any) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), torch.autocast("cpu"):
        assert fast(X).dtype == torch.bfloat16
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        fast(X)
    assert counter.get_total_flops() and fast.kgen.calls == 0
    with torch.no_grad(), torch.device("cpu"):  # it only says where new tensors are made
        fast(X)
    assert fast.kgen.calls == 1


def test_a_patch_of_a_class_is_seen(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Block, "forward", lambda self, x: x)
    with torch.no_grad():
        assert fast(X) is X


def test_the_winner_comes_back_with_what_it_was_made_for(fast: Any, module: Block) -> None:
    handle = fast.linear.register_forward_hook(lambda *_: None)
    fast.train()
    with torch.no_grad():
        fast(X)
    fast.eval()
    handle.remove()
    check(fast, module)


def test_weights_that_change_are_seen(fast: Any, module: Block) -> None:
    with torch.no_grad():
        module.linear.weight.mul_(2)
    check(fast, module)
    module.load_state_dict(Block().state_dict())
    check(fast, module)
    other = Block().eval()
    fast.load_state_dict(other.state_dict(), assign=True)
    check(fast, other)
    torch.optim.SGD(fast.parameters(), 0.1).step()
    check(fast, other)


def test_gradients_are_those_of_the_original(fast: Any, module: Block) -> None:
    fast(X).sum().backward()
    expected = torch.autograd.grad(module(X).sum(), [*module.parameters()])
    for p, g in zip(fast.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, g)


def test_a_copy_has_weights_of_its_own(fast: Any, module: Block) -> None:
    other = copy.deepcopy(fast)
    check(other, module)
    with torch.no_grad():
        other.linear.weight.zero_()
    check(fast, module)
    assert not torch.equal(other(X), fast(X))


def test_a_pickled_module_runs_its_winner(fast: Any, module: Block) -> None:
    check(pickle.loads(pickle.dumps(fast)), module)


def test_a_shallow_copy_runs_the_original(fast: Any, module: Block) -> None:
    other = copy.copy(fast)
    with torch.no_grad():
        torch.testing.assert_close(other(X), module(X))


class Larger(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x * 2) + 1


def test_a_larger_program_that_is_compiled_calls_an_operator(fast: Any, module: Block) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Larger(fast), backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(X), Larger(module)(X))
        assert fast.kgen.calls == 2
        module.linear.weight.mul_(2)
        torch.testing.assert_close(compiled(X), Larger(module)(X))
        assert fast.kgen.calls == 3
        for other in (torch.randn(4, 5, 8), torch.randn(9, 3, 8)):
            torch.testing.assert_close(compiled(other), Larger(module)(other))
        fast.train().eval()
        torch.testing.assert_close(compiled(X), Larger(module)(X))
    compiled(X).sum().backward()  # with gradients, the original is a part of the graph
    assert module.linear.weight.grad is not None
    torch._dynamo.reset()


def test_an_operator_of_a_copy_has_the_weights_of_the_copy(fast: Any) -> None:
    torch._dynamo.reset()
    other = copy.deepcopy(fast)
    with torch.no_grad():
        other.linear.weight.zero_()
        torch.testing.assert_close(torch.compile(other, backend="aot_eager", fullgraph=True)(X), other(X))
    torch._dynamo.reset()


def test_export_takes_the_original(fast: Any, module: Block) -> None:
    with torch.no_grad():
        program = torch.export.export(fast, (X,))
        torch.testing.assert_close(program.module()(X), module(X))
    assert not any("kgen" in str(n.target) for n in program.graph.nodes)
    check(fast, module)


def test_threads_may_call_it_at_once(fast: Any, module: Block) -> None:
    inputs = [torch.randn(n, 3, 8) for n in range(2, 10)]
    found: list[Any] = [None] * len(inputs)

    def call(at: int) -> None:
        with torch.no_grad():
            found[at] = [fast(inputs[at]) for _ in range(20)][-1]

    threads = [threading.Thread(target=call, args=(at,)) for at in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with torch.no_grad():
        for x, y in zip(inputs, found):
            torch.testing.assert_close(y, module(x))


def test_a_file_that_raises_is_replaced_by_the_original(fast: Any, module: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setattr(vars(fast)["_kgen_run"].entries[0], "forward", refuse)
    check(fast, module, 0)
    assert fast.kgen.fallbacks == {"the file refused the call: RuntimeError: no memory": 1}


def test_further_sizes_have_winners_of_their_own(module: Block, sweeps: Sweeps) -> None:
    fast = optimized(module, sizes=[torch.randn(4, 5, 8)])
    check(fast, module)
    check(fast, module, 1, torch.randn(4, 5, 8))
    check(fast, module, 0, torch.randn(4, 4, 8))
    assert len(sweeps.names) == 2


LENGTH = torch.export.Dim("length", min=2, max=5)


@pytest.mark.parametrize("sizes", [{1: LENGTH}, ({1: LENGTH},), {"x": {1: LENGTH}}, [(None, LENGTH, None)]])
def test_both_ends_of_a_range_have_winners_and_what_is_between_them_none(module: Block, sweeps: Sweeps, sizes: Any) -> None:
    fast = optimized(module, sizes=[sizes])
    for length, calls in ((3, 1), (2, 1), (5, 1), (4, 0)):
        check(fast, module, calls, torch.randn(4, length, 8))
    assert len(sweeps.names) == 3


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ({1: torch.export.Dim("length")}, "has no max"),
        (({1: LENGTH}, None), "2 entries of Dims for 1 inputs"),
        ({"y": {1: LENGTH}}, "no argument 'y'"),
        ({3: LENGTH}, "has no dimension 3"),
    ],
)
def test_ranges_that_do_not_fit_the_inputs_are_refused(module: Block, sizes: Any, line: str) -> None:
    with pytest.raises(InputError, match=line):
        optimized(module, sizes=[sizes])


def test_submodules_take_the_place_of_a_module_that_export_refuses(sweeps: Sweeps) -> None:
    module = Held().eval()
    fast = optimized(module)
    (part,) = fast.kgen.parts
    assert part.paths == ("blocks.0", "blocks.1") and sweeps.names == ["Block"]
    assert fast.kgen.tried[0].path == ""
    check(fast, module, 2)
    fast.blocks[0].train()
    with torch.no_grad():
        fast(X)
    assert fast.kgen.fallbacks == {"train() or eval() was called": 1}


def test_named_submodules_alone_are_swept(sweeps: Sweeps) -> None:
    fast = optimized(Held().eval(), modules=["blocks.1"])
    assert [part.paths for part in fast.kgen.parts] == [("blocks.1",)]


def test_what_is_not_faster_in_this_process_is_not_put_in(module: Block, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "compared", lambda *args: Interval(0.9, 1.1, 1.2))
    fast = optimized(module)
    assert not fast.kgen.replaced and "nothing beats PyTorch here" in str(fast.kgen)
    with torch.no_grad():
        torch.testing.assert_close(fast(X), module(X))


def test_what_is_wrong_on_the_inputs_is_not_put_in(module: Block, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "doubled", lambda *args: None)
    monkeypatch.setattr(optimize, "attach_part", _with_error(optimize.attach_part))
    assert not optimized(module).kgen.replaced


def _with_error(attach: Any) -> Any:
    def attached(*args: Any) -> Any:
        part = attach(*args)
        for dispatch in part.dispatches:
            for entry in dispatch.entries:
                forward = entry.forward
                entry.forward = lambda *given: forward(*given) * 1.01
        return part

    return attached


def test_the_store_is_asked_before_anything_is_swept(module: Block, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[modules.StoredModule] = []
    texts: dict[str, tuple[str, str]] = {}
    monkeypatch.setattr(optimize, "_keep", KEEP)
    monkeypatch.setattr(searching.Searching, "_swept_problem", lambda self, *args: _noted(sweeps.swept(self, *args), texts))
    monkeypatch.setattr(modules, "texts", lambda database, candidate, problem: texts.get(candidate))
    assert not optimized(module, cached_only=True).kgen.replaced
    optimized(module)
    again = optimized(Block().eval(), cached_only=True)  # the fingerprint reads no weights
    assert again.kgen.replaced and again.kgen.from_store and len(sweeps.names) == 1
    assert again.kgen.speedup == FASTER
    with Database.open() as database:
        kept += [found for found in [modules.find(database, fingerprint(Block().eval(), [((X,), {})], optimize._settings(Options())))] if found]
    assert [part["paths"] for part in kept[0].parts] == [[""]]
    texts.clear()
    assert not optimized(module, cached_only=True).kgen.replaced  # its text was pruned


def _noted(winner: Any, texts: dict[str, tuple[str, str]]) -> Any:
    texts[winner.candidate] = winner.source, winner.problem_source
    return winner


def test_fingerprints_tell_modules_apart(module: Block) -> None:
    def of(module: nn.Module, *args: Any) -> str:
        return fingerprint(module, [(args or (X,), {})], ())

    class Other(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    changed = Block().eval()
    changed.config["scale"] = 4.0
    patched = Block().eval()
    patched.factor = 5.0
    every = [module, Block(), Other().eval(), changed, patched, Block().eval().double(), Held().eval()]
    assert of(module) == of(Block().eval()) and len({of(one) for one in every}) == len(every)
    assert of(module) != of(module, torch.randn(5, 3, 8)) != of(module, X.double())


def test_a_fingerprint_does_not_depend_on_what_ran_before(module: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    def hooked() -> Block:
        found = Block().eval()
        found.linear.register_forward_hook(print)
        return found

    def of(module: Block) -> str:
        return fingerprint(module, [((X,), {})], ())

    before, with_hook = of(module), of(hooked())
    module._is_torch_compile = True  # the mark of torch.compile
    assert of(module) == before
    assert of(hooked()) == with_hook != before  # hooks are counted
    monkeypatch.setattr(Block, "forward", lambda self, x: x)
    assert of(module) != before


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"minutes": 0}, InputError),
        ({"accuracy": "exact"}, InputError),
        ({"modules": "some"}, InputError),
        ({"modules": ["nowhere"]}, InputError),
        ({"device": "cuda:7"}, DeviceError),
        ({"device": "tpu"}, DeviceError),
    ],
)
def test_bad_arguments_are_refused_in_one_line(more: dict[str, Any], error: type[KgenError], module: Block) -> None:
    with pytest.raises(error) as raised:
        optimized(module, **more)
    assert "\n" not in str(raised.value)


def test_inputs_that_the_module_does_not_take_raise_its_own_error(module: Block) -> None:
    with pytest.raises(RuntimeError, match="normalized_shape"):
        optimized(module, torch.randn(4, 7))
    with pytest.raises(InputError, match="no tensor"):
        kgen.optimize(module, [3])
    with pytest.raises(InputError, match="not a function"):
        kgen.optimize(lambda x: x, X)


def test_the_report_is_a_table(fast: Any) -> None:
    text = str(fast.kgen)
    for part in ("Block", "1.20x [1.10, 1.30]", "all of it", "linear", "MB beside the weights"):
        assert part in text
    assert fast.kgen._repr_html_().startswith("<table>") and repr(fast.kgen) == text
    assert fast.kgen.over_baseline == ("eager", FASTER) and fast.kgen.library == {"linear": 1}


def test_importing_kgen_imports_no_torch() -> None:
    import subprocess
    import sys

    code = "import kgen, sys; kgen.optimize; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_inference_mode_and_autocast_around_it_change_nothing(module: Block, sweeps: Sweeps) -> None:
    with torch.inference_mode():
        x = torch.randn(4, 3, 8)
        fast = optimized(module, x)
        torch.testing.assert_close(fast(x), module(x))
    assert fast.kgen.calls == 1
    with torch.autocast("cpu"):
        assert optimized(module).kgen.replaced
