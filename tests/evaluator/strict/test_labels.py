"""Labels: what a file says, what a worker measures, and that neither decides anything."""

from dataclasses import replace

import pytest
import torch
from candidates import plain, render
from models import design, plainest, reference

from kgen.candidate import Candidate
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.protocol import Accuracy, Status
from kgen.evaluator.strict import profile
from kgen.evaluator.strict.labels import FINDINGS, has_native_code, measured_labels, static_labels
from kgen.evaluator.strict.profile import Event
from kgen.hardware import cpu, for_arch
from kgen.problem import read_problem
from kgen.tuning.search import Point

# ---- static findings -------------------------------------------------------------------------------------------

#: For each finding, files that it is found in, and the words that are shown.
EXAMPLES = {
    "main operator": [("import torch.nn.functional as F\ny = F.linear(x, w)", "linear"), ("y = x @ w", "@"),
                      ("import torch\ny = torch.bmm(a, b)", "bmm"), ("y = x.matmul(w)", "matmul"),
                      ("import torch.nn as nn\nself.fc = nn.Linear(2, 3)\ny = self.fc(x)", "linear")],
    "compiler": [("import torch\nf = torch.compile(g)", "torch.compile")],
    "fallback": [("try:\n    kernel()\nexcept RuntimeError:\n    y = library()", "RuntimeError"),
                 ("try:\n    kernel()\nexcept:\n    pass", "except")],
    "identity": [("def forward(self, x):\n    return cache[x.data_ptr()]", "data_ptr"),
                 ("def forward(self, x):\n    key = (id(x), x._version)\n    return self.kept.get(key)", "id"),
                 ("def forward(self, x):\n    return cache.get(x._version)", "_version"),
                 ("def forward(self, x):\n    if self.seen is not x:\n        work()", "is")],
    "content": [("import torch\nif torch.equal(x, seen):\n    y = kept", "torch.equal")],
    "globals": [("cache = {}\ndef forward(x):\n    cache[0] = x", "cache"),
                ("kept = None\ndef forward(x):\n    global kept\n    kept = x", "kept"),
                ("kept = []\ndef forward(x):\n    kept.append(x)", "kept")],
    "memoised": [("import functools\n@functools.lru_cache\ndef f(x): ...", "functools.lru_cache")],
    "threads": [("import threading", "threading"), ("from concurrent.futures import ThreadPoolExecutor", "concurrent"),
                ("SOURCE = 'std::thread t(work);'", "std::thread"), ("import os\nos.fork()", "os.fork")],
    "streams": [("import torch\ns = torch.cuda.Stream()", "torch.cuda.Stream"),
                ("SOURCE = 'cudaStreamCreateWithFlags(&s, 1);'", "cudaStreamCreateWithFlags")],
    "graphs": [("import torch\ng = torch.cuda.CUDAGraph()", "torch.cuda.CUDAGraph"),
               ("SOURCE = 'cudaGraphLaunch(g, s);'", "cudaGraphLaunch")],
    "persisting cache": [("SOURCE = 'cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, n);'",
                          "cudaLimitPersistingL2CacheSize"),
                         ("SOURCE = 'v.accessPolicyWindow.hitRatio = 1;'", "accessPolicyWindow")],
    "lower precision": [("y = x.half()", "x.half"), ("import torch\ny = x.to(torch.bfloat16)", "torch.bfloat16"),
                        ("SOURCE = '__half h = 1;'", "__half"), ("SOURCE = 'wmma::load(a);'", "wmma")],
    "fast math": [("FLAGS = ['-use_fast_math']", "-use_fast_math"), ("FLAGS = ['-O3', '-ffast-math']", "-ffast-math"),
                  ("SOURCE = 'y = __expf(x);'", "__expf")],
    "switches": [("import torch\ntorch.backends.cudnn.allow_tf32 = True", "torch.backends.cudnn.allow_tf32"),
                 ("import torch\ntorch.set_num_threads(1)", "torch.set_num_threads"),
                 ("import torch\nsetattr(torch.backends.cudnn, 'enabled', 0)", "torch.backends.cudnn.enabled")],
    "seeds": [("import torch\ntorch.manual_seed(0)", "torch.manual_seed")],
    "patches": [("import time\ntime.perf_counter = f", "time.perf_counter"),
                ("import torch as t\nt.cuda.Event = Fake", "torch.cuda.Event")],
    "subclass": [("import torch\nclass Lazy(torch.Tensor): ...", "Lazy")],
    "dispatcher": [("import torch\nlib = torch.library.Library('aten', 'IMPL')", "torch.library.Library")],
    "frames": [("import sys\nf = sys._getframe(1)", "sys._getframe"), ("import inspect", "inspect"),
               ("from gc import get_objects\nget_objects()", "gc.get_objects")],
    "memory": [("import ctypes\nctypes.string_at(p, 8)", "ctypes.string_at"),
               ("import ctypes\nlibc = ctypes.CDLL(None)", "CDLL(None)")],
    "system": [("import os, socket", "os, socket"), ("from subprocess import run", "subprocess")],
    "clocks": [("from time import perf_counter", "time"), ("SOURCE = 'long t = clock64();'", "clock64(")],
    "files": [("open('f').read()", "open"), ("import torch\ntorch.load('f')", "torch.load"),
              ("SOURCE = 'fopen(name);'", "fopen(")],
    "text as code": [("exec('y = 1')", "exec"), ("import importlib\nimportlib.import_module(n)", "importlib")],
    "kgen": [("import kgen.evaluator", "kgen"), ("import sys\nsys.modules['x']", "sys.modules")],
    "shapes": [("def forward(self, x):\n    if x.shape[0] in (1024, 64):\n        return 1", "x.shape[0]")],
}
CASES = [(name, source, words) for name, found in EXAMPLES.items() for source, words in found]


def says(name, words):
    return "static: " + next(f.says for f in FINDINGS if f.name == name).format(words)


def test_each_finding_has_an_example():
    assert set(EXAMPLES) == {finding.name for finding in FINDINGS}


@pytest.mark.parametrize("name, source, words", CASES, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(CASES)])
def test_a_finding_names_what_was_found(name, source, words):
    labels = static_labels(source, accuracy="fp32")
    assert any(label.startswith(says(name, words)) for label in labels), labels


@pytest.mark.parametrize("source", [
    "try:\n    build()\nexcept OSError as error:\n    raise RuntimeError('no compiler') from error",
    "def dense(x):\n    return x if x.data_ptr() % 16 == 0 else x.clone()",
    "def launch(kernel, *tensors):\n    kernel(*[t.data_ptr() for t in tensors])",
    "def prepared(self):\n    state = (self.weight.data_ptr(), self.weight._version)\n    return state == self.state",
    "import ctypes\nfrom torch.utils.cpp_extension import load_inline\n"
    "lib = ctypes.CDLL(load_inline(name='n'))\nlib.f.argtypes = [ctypes.c_void_p, ctypes.c_long]",
    '"""Uses no threads, no cudaGraphLaunch and no open()."""',
    "SOURCE = '// like std::thread\\nint f();'",
    "import torch\ns = torch.cuda.current_stream(x.device).cuda_stream",
    "def forward(self, x):\n    if x.shape[-1] != self.width:\n        raise ValueError(x.shape)",
    "if self.kept is None:\n    self.kept = 1",
], ids=["raises anew", "alignment", "pointers", "weights by version", "ctypes", "docstring", "comment", "stream",
        "check", "none"])
def test_what_honest_files_do_is_not_found(source):
    assert static_labels(source, accuracy="fp32") == []


@pytest.mark.parametrize("hardware", [cpu(), for_arch("sm_80"), for_arch("sm_90a")], ids=lambda h: h.arch)
def test_rendered_files_have_no_findings(hardware):
    of = design(reference("linear_gelu_softmax", "eval"), hardware)
    for number, option in enumerate(of.options):
        candidate = of.candidate(Point(number, tuple(len(kernel) // 2 for kernel in option.kernels)))
        assert static_labels(candidate.source, accuracy="fp32", plan=candidate.plan) == [], candidate.plan


def test_lower_precision_is_no_finding_in_the_class_tf32():
    assert static_labels("y = x.half()", accuracy="tf32") == []


def test_many_words_are_counted():
    source = "import os, sys, socket, subprocess, signal, atexit"
    assert static_labels(source, accuracy="fp32") == ["static: imports os, sys, socket, subprocess and 2 more"]


@pytest.mark.parametrize("source", ["def", "\0", "(" * 5000], ids=["no Python", "a null byte", "too deep"])
def test_a_file_that_is_no_python_has_no_findings(source):
    assert static_labels(source, accuracy="fp32") == []


def test_a_file_without_any_way_to_native_code_has_none():
    assert not has_native_code(plain("return y"))
    assert has_native_code(render())
    assert has_native_code("import triton.language as tl")


# ---- what was measured -----------------------------------------------------------------------------------------


def labels(native=True, prepare_ms=None, cuda=True, **found):
    return measured_labels({"own_ns": 23, "all_ns": 100} | found, native=native, prepare_ms=prepare_ms, cuda=cuda)


@pytest.mark.parametrize("found, label", [
    ({}, "own kernels 23% of the time"),
    ({"cuda": False}, "own kernels and Python 23% of the time"),
    ({"own_ns": 0}, "no kernel of its own: calls the library only"),
    ({"native": False}, "no kernel of its own: calls the library only"),
    ({"own_ns": 1, "all_ns": 1000}, "own kernels less than 1% of the time"),
    ({"own_ns": 0, "all_ns": 0}, "share of own kernels not known: the profiler sees no kernel here"),
])
def test_the_share_of_own_kernels_is_always_told(found, label):
    assert labels(**found) == [label]


@pytest.mark.parametrize("found, label", [
    ({"kept_bytes": 268_435_456, "known_bytes": 300_000_000}, "keeps 268 MB between calls"),
    ({"kept_bytes": 61_440, "known_bytes": 127_360}, "keeps 61.4 kB between calls"),
    ({"more_bytes": 61_440, "known_bytes": 127_360}, "keeps 61.4 kB more after every call"),
    ({"fresh_ns": 1000, "same_ns": 50}, "a call with unchanged inputs takes 5% of the time of others"),
    ({"fresh_ns": 4_000_000, "prepare_ns": 3_300_000, "prepare_ms": 3.1},
     "first call after new weights takes 3.1 ms more"),
])
def test_what_is_notable_is_told(found, label):
    assert labels(**found)[1:] == [label]


@pytest.mark.parametrize("found", [
    {"kept_bytes": 1000, "known_bytes": 300_000_000},
    {"fresh_ns": 1000, "same_ns": 900},
    {"fresh_ns": 4_000_000, "prepare_ns": 3_300_000, "prepare_ms": 0.01},
    {"fresh_ns": 4_000_000, "prepare_ns": 10, "prepare_ms": 3.1},
    {"fresh_ns": 40_000_000, "prepare_ns": 3_300_000, "prepare_ms": 3.1},
], ids=["few bytes", "no faster", "fast when timed", "fast when profiled", "a small share"])
def test_what_is_not_notable_is_not(found):
    assert labels(**found)[1:] == []


@pytest.mark.parametrize("value", ["23", -1, True, 1 << 80, None, [1], 2.5])
def test_an_answer_that_makes_no_sense_is_no_number(value):
    found = dict.fromkeys(("kept_bytes", "more_bytes", "known_bytes", "fresh_ns", "same_ns", "prepare_ns"), value)
    assert labels(**found, prepare_ms=3.0)[1:] == []


# ---- how it is measured ----------------------------------------------------------------------------------------


def test_kernels_that_no_library_operator_launched_are_own():
    events = [
        Event("aten::addmm", False, 1, 0, 50), Event("ForwardOnly", False, 2, 60, 10),
        Event("sm80_xmma_gemm_f32f32", True, 1, 5, 700), Event("row_gelu_softmax", True, 0, 800, 200),
        Event("epilogue", True, 2, 1000, 100),
    ]
    assert profile.kernels_share(events) == (300, 1000)


@pytest.mark.parametrize("name", [
    "void at::native::vectorized_elementwise_kernel<4>", "nvjet_sm90_sss_128x128", "ampere_sgemm_128x64_tn",
    "void cublasLt::splitKreduce_kernel<32>", "Memcpy DtoD (Device -> Device)", "void cudnn::ops::nchwToNhwc",
])
def test_kernels_of_the_library_are_known_by_their_names_too(name):
    assert profile.kernels_share([Event(name, True, 0, 0, 100)]) == (0, 100)


def test_on_the_cpu_time_outside_library_operators_is_own():
    events = [
        Event("aten::linear", False, 1, 100, 400), Event("aten::addmm", False, 2, 120, 300),
        Event("aten::gelu", False, 3, 450, 100), Event("my::op", False, 4, 600, 300),
    ]
    assert profile.operators_share(events, 1000) == (550, 1000)


def test_tensors_are_reached_in_attributes_globals_and_closures_but_not_in_other_files():
    kept = [torch.ones(2 + i) for i in range(4)]
    namespace = {"__name__": "kgen_candidate", "cache": {"a": [kept[0]]}, "torch": torch}
    exec("def make(x):\n    return lambda: x\nclass Holder: pass", namespace)
    namespace["closure"], namespace["Holder"].kept = namespace["make"](kept[1]), kept[2]
    model = torch.nn.Linear(2, 2)
    model.other = kept[3]
    namespace["elsewhere"] = lambda x=torch.ones(9): x
    found = {x.numel() for x in profile._reached(model, namespace)}
    assert found == {2, 3, 4, 5} | {x.numel() for x in model.parameters()}


@pytest.fixture(scope="module")
def judge(evaluator, builder):
    """Evaluate a file from outside; its evaluation."""
    return lambda source: evaluator.evaluate(Candidate(source, "by hand", {}, "cpu", origin="file"),
                                             builder.build(source))


def test_a_file_that_calls_the_library_only_is_labelled(judge):
    evaluation = judge(plain("return y"))
    assert evaluation.status is Status.OK, evaluation.reason
    assert "no kernel of its own: calls the library only" in evaluation.labels


def test_the_share_of_a_kernel_of_its_own_is_labelled(judge):
    evaluation = judge(render())
    assert evaluation.status is Status.OK, evaluation.reason
    assert any(label.startswith("own kernels") for label in evaluation.labels), evaluation.labels


def test_a_result_that_is_remembered_is_labelled(judge):
    evaluation = judge(plain(
        "weight = self.linear.weight._version\n"
        "if self.kept is None or weight != self.kept[2] or not torch.equal(self.kept[0], x):\n"
        "    self.kept = x.clone(), torch.softmax(F.gelu(self.linear(x)), dim=1), weight\n"
        "return self.kept[1].clone()").replace("y = torch.softmax(F.gelu(self.linear(x)), dim=1)", "work = 1"))
    assert evaluation.status is Status.OK, evaluation.reason
    assert any(label.startswith("keeps 102 kB between calls") for label in evaluation.labels), evaluation.labels
    assert "static: compares contents: torch.equal" in evaluation.labels


def test_a_list_that_grows_is_labelled(judge):
    source = plain("KEPT.append(y.clone())\nreturn y").replace("class ModelNew", "KEPT = []\n\n\nclass ModelNew")
    evaluation = judge(source)
    assert evaluation.status is Status.OK, evaluation.reason
    assert "keeps 61.4 kB more after every call" in evaluation.labels


def test_a_profile_that_fails_is_no_failure_of_the_candidate(judge, monkeypatch):
    from kgen.evaluator.correctness.validate import WorkerClient

    ask = WorkerClient.ask
    monkeypatch.setattr(WorkerClient, "ask", lambda self, do, *rest, **request: (
        {"error": "no profiler"} if do == "profile" else ask(self, do, *rest, **request)))
    evaluation = judge(plain("return y"))
    assert evaluation.status is Status.OK, evaluation.reason
    assert "not profiled: no profiler" in evaluation.labels


def test_static_findings_are_told_of_wrong_candidates_too(judge):
    evaluation = judge(plain("return y.half().float()"))
    assert evaluation.status is Status.WRONG_VALUES
    assert "static: computes in a lower precision: y.half" in evaluation.labels


@pytest.mark.gpu
def test_on_a_gpu_own_kernels_are_told_from_the_librarys(tmp_path):
    sizes = {"batch_size": "512", "in_features": "512", "out_features": "1024"}
    problem = read_problem("linear_gelu_softmax", sizes, mode="eval")
    with Evaluator(problem, device="cuda", accuracy=Accuracy.FP32, home=tmp_path, baselines=("eager",)) as evaluator:
        of = design(reference("linear_gelu_softmax", "eval", **sizes), evaluator.hardware)
        files = {c.plan: c for c in plainest(of)}
        shares = {}
        for plan in ("linear(library) + inner_reduction[gelu, softmax]", "linear(library) + gelu(library) + softmax(library)"):
            candidate = replace(files[plan], origin="file")
            evaluation = evaluator.evaluate(candidate, evaluator.builder().build(candidate.source))
            assert evaluation.status is Status.OK, evaluation.reason
            shares[plan] = evaluation.labels[0]
    mixed, library = shares.values()
    assert mixed.startswith("own kernels") and mixed.endswith("% of the time")
    assert library == "no kernel of its own: calls the library only"
