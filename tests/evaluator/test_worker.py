"""What a worker reads of an output when its call ends, and what it calls and keeps around a timed call."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
import torch.nn as nn
from torch.utils._python_dispatch import TorchDispatchMode

from kgen.evaluator.candidates import guards, worker
from kgen.evaluator.candidates.build import Extension
from kgen.evaluator.candidates.worker import Subject
from kgen.evaluator.correctness.distributions import WEIGHTS
from kgen.evaluator.runtime.arena import Arena, describe, tensors
from kgen.evaluator.strict.names import OPERATORS
from kgen.evaluator.strict.subject import StrictSubject, _sampled

PAGE = 4096


@pytest.mark.parametrize("key", [0, 1, 12345, 2**48 - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8])
def test_some_of_every_page_is_read(dtype, key):
    pages = 4096 * 2
    x = torch.zeros(pages * PAGE // dtype.itemsize, dtype=dtype)
    for page in (0, 7, pages - 1):
        x.zero_()
        x[page * PAGE // dtype.itemsize : (page + 1) * PAGE // dtype.itemsize] = 1
        (found,) = _sampled(x, key, 4096)
        assert found.sum() >= 1


@pytest.mark.parametrize("x", [
    torch.arange(12.0).view(3, 4).t(), torch.ones(1).expand(5, 6), torch.tensor(3.0), torch.ones(4, 8)[1:3, 2:5],
], ids=["transposed", "expanded", "a scalar", "a window"])
def test_outputs_of_any_layout_are_read_inside_their_memory(x):
    for key in range(9):
        (found,) = _sampled(x, key, 4096)
        everything = x.as_strided((x.untyped_storage().nbytes() // 4,), (1,), 0)
        assert found.numel() and set(found.tolist()) <= set(everything.tolist())


def test_an_empty_output_has_nothing_to_read():
    assert [found.numel() for found in _sampled([torch.ones(0, 3)], 5, 4096)] == [0]


def test_the_order_of_a_dict_does_not_tell_its_parts_apart():
    a, b = torch.ones(2), torch.zeros(3)
    assert describe({"a": a, "b": b}) == describe({"b": b, "a": a})
    assert [x.numel() for x in tensors({"b": b, "a": a})] == [2, 3]
    assert describe({1: a}) != describe({"1": a})


def test_a_class_that_says_it_is_a_tensor_is_none():
    kind = type("Equal", (type(torch.Tensor),), {"__eq__": lambda *_: True, "__hash__": type.__hash__})
    lazy = torch.ones(2).as_subclass(kind("Lazy", (torch.Tensor,), {}))
    assert describe(lazy)[0]["kind"] == "other" and tensors([lazy]) == []


class _Operators(TorchDispatchMode):
    """Keeps the names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.name().removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


class _Passes(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix, self.vector = nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(3))
        self.register_buffer("steps", torch.ones(3))

    def forward(self, x, *_):
        return x.clone()


@pytest.fixture(params=[StrictSubject])
def subject(request):
    found = request.param({"device": "cpu", "shared": False, "accuracy": "fp32", "flags": ()})
    found.model = found.call_model = _Passes()
    found.modes = ["train"]
    found.state.match(found.model, {name: x.clone() for name, x in found.model.state_dict().items()}, {}, frozenset())
    found.output, found.generators = Arena.create(1 << 20), [torch.default_generator]
    yield found
    found.output.close()


POOL = [[torch.randn(40, 32), torch.randint(9, (40, 5)), torch.randn(()), torch.randn(40, 32)] for _ in range(4)]


def prepared(subject):
    arena, node = Arena.holding(POOL)
    subject.flush_buffer = torch.full((256,), 1.0)
    subject.rehearse({"pool": node, "pool_bytes": arena.size, "frees": False}, [os.dup(arena.fd)])
    subject.prepare({}, [])
    arena.close()


def call(subject, key):
    subject.prepare_call({"watched": False, "key": key, "cold": True, "mode": "train"}, [])
    reply = subject.run_call({"id": 1, "how": "event", "sleep_ns": 0}, [])
    return reply, lambda: subject.fetch({}, [])


def test_tamper_detection_knows_every_operator_around_a_timed_call(subject):
    with _Operators() as operators:
        prepared(subject)
        call(subject, 0)[1]()
        for change in WEIGHTS:
            subject.state.use(change)
    assert operators.seen <= set(OPERATORS), operators.seen - set(OPERATORS)


def test_inputs_that_are_validated_lie_in_one_place(subject):
    def told(x, number):
        found = guards.guarded(x, subject.device, [], subject._place(x, number))
        return found.data_ptr(), found._version, found.equal(x)

    first, again, other, another = (told(torch.randn(shape), number) for shape, number in
                                    (((40, 32), 0), ((40, 32), 0), ((40, 32), 1), ((7, 32), 0)))
    assert first == again and first[2] and len({place for place, *_ in (first, other, another)}) == 3


@pytest.mark.parametrize("ring", [2, 3, 7])
def test_an_output_that_was_fetched_is_known_again_however_late(subject, ring):
    outputs = [torch.empty(40, 32) for _ in range(ring)]
    turns = itertools.cycle(outputs)
    subject.model.forward = lambda x, *_: next(turns).copy_(x)
    prepared(subject)
    call(subject, 0)[1]()  # fetched; others are, behind it
    seen = []
    for key in range(1, ring + 1):
        reply, fetch = call(subject, key)
        seen.append(bool(reply["alias"]))
        fetch()
    assert seen == [False] * (ring - 1) + [True]


def test_outputs_that_were_fetched_are_let_go_where_they_are_large(subject, monkeypatch):
    prepared(subject)
    monkeypatch.setattr("kgen.evaluator.strict.subject._HELD_BYTES", 3 * 40 * 32 * 4)
    for key in range(9):
        call(subject, key)[1]()
    assert len(subject.held) == 3
    monkeypatch.setattr("kgen.evaluator.strict.subject._HELD_BYTES", 0)
    call(subject, 9)[1]()
    assert len(subject.held) == 1 and subject.held[0].output is subject.last


@pytest.fixture
def plainly(subject):
    """The same subject, with the plain checks of own candidates."""
    found = Subject({"device": "cpu", "shared": False, "accuracy": "fp32", "flags": ()})
    for name in ("model", "call_model", "modes", "state", "output", "generators"):
        setattr(found, name, getattr(subject, name))
    return found


def block(subject, *keys):
    return subject.block({"keys": list(keys), "modes": ["train"], "sleep_ns": 0, "cold": True}, [])


def test_a_block_has_a_sample_for_each_key_and_new_contents_for_each(plainly):
    seen = []
    plainly.model.forward = lambda x, *_: seen.append(x.clone()) or x.clone()
    prepared(plainly)
    seen.clear()
    reply = block(plainly, 1, 2, 3)
    assert len(reply["ns"]) == 3 and all(ns > 0 for ns in reply["ns"]) and not reply["alias"]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(seen, 2))
    assert plainly.fetch({}, [])["mutated"] == ""


def test_a_large_output_that_was_fetched_is_freed_and_a_call_that_is_no_sample_follows(plainly):
    calls = []
    plainly.model.forward = lambda x, *_: calls.append(1) or x.clone()
    prepared(plainly)
    plainly.frees = True
    block(plainly, 1)
    plainly.fetch({}, [])
    assert plainly.last is None
    calls.clear()
    assert (len(block(plainly, 2, 3)["ns"]), len(calls)) == (2, 3)
    assert (len(block(plainly, 4)["ns"]), len(calls)) == (1, 4)


def test_a_block_tells_of_an_output_that_is_used_again(plainly):
    kept = torch.empty(40, 32)
    plainly.model.forward = lambda x, *_: kept.copy_(x)
    prepared(plainly)
    assert block(plainly, 1, 2)["alias"]


def test_an_own_candidates_worker_loads_no_tamper_detection():
    script = "import sys, kgen.evaluator.candidates.worker; print([m for m in sys.modules if 'evaluator.strict' in m])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_built_library_is_taken_by_what_it_is_made_of(monkeypatch):
    from torch.utils import cpp_extension

    loaded = []
    monkeypatch.setattr(cpp_extension, "load_inline", lambda name, *_, **__: f"built {name}")
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    known, plain = Extension("known", "int f;", "", ("-O2",), ()), {"is_python_module": False, "no_implicit_headers": True}
    worker.use_built({known.content: "/scratch/known.so"})
    load = cpp_extension.load_inline
    assert load(name="known", cpp_sources="int f;", extra_cflags=["-O2"], **plain) == "/scratch/known.so"
    assert loaded == ["/scratch/known.so"]
    assert load("known", cpp_sources="int g;", extra_cflags=["-O2"], **plain) == "built known"
    assert load("known", cpp_sources="int f;", extra_cflags=["-O2"]) == "built known"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler, at its import
@pytest.mark.parametrize("fails", [False, True])
def test_compiling_alone_runs_no_module_and_fails_none(monkeypatch, fails):
    compiled, ran = [], []

    def compile(graph, examples, options):
        compiled.append(options)
        if fails:
            raise RuntimeError("no kernel")
        return lambda *inputs: ran.append(inputs)

    monkeypatch.setattr(torch._inductor, "compile", compile)
    worker.compile_only(nn.ReLU(), "max-autotune-no-cudagraphs", [torch.ones(3)])
    assert len(compiled) == 1 and compiled[0]["max_autotune"] and not ran


_COMPILED_ALONE = """
import torch
import torch.nn as nn
from torch._dynamo.utils import counters
from kgen.evaluator.candidates.worker import compile_only

model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda(), torch.ones(3, 4, device="cuda")
with torch.no_grad():
    compile_only(model, "default", [x])
    print(counters["inductor"]["fxgraph_cache_miss"])
    torch.compile(model, mode="default")(x)
    print(counters["inductor"]["fxgraph_cache_miss"])
"""


@pytest.mark.gpu
def test_the_call_after_compiling_alone_compiles_nothing(tmp_path):
    """In a process of its own, whose compiler has its caches."""
    ended = subprocess.run([sys.executable, "-c", _COMPILED_ALONE], capture_output=True, text=True,
                           env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0"})
    assert ended.stdout.split() == ["1", "1"], ended.stderr
