"""Tamper detection: what it finds, each by a real worker, and what honest code may do."""


import pytest
from candidates import PLAIN, plain

from kgen.protocol import Phase, Status

RIGHT = "return y"


def at_load(statements, body=RIGHT):
    """A right file that runs ``statements`` when it is imported."""
    return plain(body).replace("\n\nclass ModelNew", f"\n{statements}\n\n\nclass ModelNew")


def quietly(statement):
    """``statement``, whose failure goes unnoticed, before the right output."""
    return plain(f"try:\n    {statement}\nexcept Exception:\n    pass\nreturn y")


#: Name: (source, what the reason says).
EVENTS = {
    "writes a file": (quietly("open('/tmp/kgen-test-watch', 'w')"), "outside its folders: /tmp/kgen-test-watch"),
    "appends to a file": (quietly("os.open('/etc/hosts', os.O_APPEND | os.O_WRONLY)"), "folders: /etc/hosts"),
    "writes through a link": (
        quietly("os.symlink('/etc', 'etc')\n    open('etc/kgen-test-watch', 'w')"), "outside its folders"),
    "leaves its folder upwards": (quietly("open('../kgen-test-watch', 'w')"), "outside its folders"),
    "connects": (quietly("__import__('socket').create_connection(('127.0.0.1', 9), 1)"), "127.0.0.1"),
    "sends": (quietly("__import__('socket').socket(type=2).sendto(b'x', ('127.0.0.1', 9))"), "in the network"),
    "listens": (quietly("__import__('socket').socket().bind(('0.0.0.0', 0))"), "in the network"),
    "looks up a name": (quietly("__import__('socket').gethostbyname('example.org')"), "looked up example.org"),
    "connects to an abstract socket": (
        quietly("__import__('socket').socket(__import__('socket').AF_UNIX).connect('\\0kgen')"), "reach the socket"),
    "forks": (quietly("os.fork() or os._exit(0)"), "forked"),
    "signals its parent": (quietly("os.kill(os.getppid(), 0)"), "sent signal 0 to process"),
    "signals everybody": (quietly("os.killpg(0, 0)"), "sent signal 0 to process 0"),
    "opens its memory": (quietly("open('/proc/self/mem', 'rb')"), "it opened /proc/self/mem"),
    "opens what the harness has open": (quietly("open('/proc/self/fd/5', 'rb')"), "it opened /proc/self/fd/5"),
    "looks into frames": (plain("sys._getframe(1).f_locals\nreturn y"), "frames"),
    "looks into frames by inspect": (plain("__import__('inspect').stack()\nreturn y"), "frames"),
    "looks into frames by an exception": (
        plain("try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    error.__traceback__.tb_frame.f_back\nreturn y"),
        "frames"),
    "looks into frames by TorchScript": (
        plain("torch._jit_internal.createResolutionCallbackFromFrame(2)('self')\nreturn y"), "frames"),
    "looks into frames by torch.fx": (
        plain("torch.fx.proxy.TracerBase()._find_user_frame().f_back\nreturn y"), "frames"),
    "looks into frames by a task": (
        plain("import asyncio\nasync def act():\n    asyncio.current_task().get_stack()\nasyncio.run(act())\nreturn y"),
        "frames"),
    "looks into frames by Python's own interface": (
        plain("__import__('ctypes').pythonapi.PyEval_GetFrame\nreturn y"), "PyEval_GetFrame"),
    "has the interpreter call it later": (
        plain("__import__('ctypes').pythonapi.Py_AddPendingCall\nreturn y"), "Py_AddPendingCall"),
    "searches all objects": (plain("__import__('gc').get_objects()\nreturn y"), "garbage collector"),
    "searches referrers": (plain("__import__('gc').get_referrers(x)\nreturn y"), "garbage collector"),
    "installs an audit hook": (at_load("sys.addaudithook(lambda *_: None)"), "audit hook"),
    "traces": (plain("sys.settrace(lambda *_: None)\nsys.settrace(None)\nreturn y"), "tracer"),
    "listens to CUDA's calls": (
        quietly("__import__('ctypes').CDLL(None).cuptiSubscribe"), "listens to CUDA's calls: cuptiSubscribe"),
    "imports kgen": (at_load("import kgen.protocol.statistics"), "it imported kgen.protocol.statistics"),
    "replaces defaults": (at_load("__import__('json').dumps.__defaults__ = (1,)"), "the defaults of json.dumps"),
    "looks into frames by a finalizer": (
        plain("class Any: pass\n__import__('weakref').finalize(Any(), sys._getframe, 1)()\nreturn y"), "frames"),
    "looks into frames by a thread": (
        plain("from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1).submit(sys._current_frames).result()"
              "\nreturn y"), "frames"),
    "looks at objects by a thread": (
        plain("import gc\nthread = threading.Thread(target=gc.get_objects)\nthread.start()\nthread.join()\nreturn y"),
        "garbage collector"),
    "replaces code": (at_load("__import__('json').dumps.__code__ = (lambda *a, **k: '{}').__code__"), "json.dumps"),
}

NAMES = {
    "a comparison": ("torch.allclose = lambda *_: True", "torch.allclose"),
    "the equality of bits": ("torch.equal = lambda *_: True", "torch.equal"),
    "the clock": ("import time\ntime.perf_counter = lambda: 0.0", "time.perf_counter"),
    "events": ("torch.cuda.Event.elapsed_time = lambda *_: 1e-3", "elapsed_time"),
    "synchronisation": ("torch.cuda.synchronize = lambda *_: None", "torch.cuda.synchronize"),
    "a method of tensors": ("torch.Tensor.__eq__ = lambda *_: True", "torch.Tensor.__eq__"),
    "a builtin": ("import builtins\nbuiltins.round = lambda *_: 0", "builtins.round"),
    "a statistic": ("import statistics\nstatistics.median = min", "statistics.median"),
    "the bases of a class": (
        "nn.Parameter.__bases__ = (type('Between', (torch.Tensor,), {}),)", "the bases of torch.nn.Parameter"),
    "a module's method": ("nn.Module.load_state_dict = lambda *_, **__: None", "load_state_dict"),
    "an operator": ("L = torch.library.Library('aten', 'IMPL')\nimport warnings\nwarnings.simplefilter('ignore')\n"
                    "L.impl('equal', lambda *_: True, 'CPU')", "aten::equal"),
    "an operator that mixes inputs": (
        "L = torch.library.Library('aten', 'IMPL')\nimport warnings\nwarnings.simplefilter('ignore')\n"
        "L.impl('logical_xor', lambda x, y: x.ne(y), 'CPU')", "aten::logical_xor"),
    "the harness's methods": (
        "next(k for k in object.__subclasses__() if k.__name__ == 'TimedCalls').flush = lambda *_: ''", "TimedCalls.flush"),
    "a method for the module's state": (
        "next(k for k in object.__subclasses__() if k.__name__ == 'State').changed_parameter = lambda *_: ''",
        "State.changed_parameter"),
}

SWITCHES = {
    "the number of threads": "torch.set_num_threads(1)",
    "cudnn allow tf32": "torch.backends.cudnn.allow_tf32 = True",
    "cublas allow tf32": "torch.backends.cuda.matmul.allow_tf32 = True",
    "float32 matmul precision": "torch.set_float32_matmul_precision('medium')",
    "the precision of float32 operators": "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    "cublas allow fp16 accumulation":
        "torch.backends.cuda.matmul.allow_fp16_accumulation = not torch.backends.cuda.matmul.allow_fp16_accumulation",
    "cudnn benchmark": "torch.backends.cudnn.benchmark = True",
    "mkldnn enabled": "torch._C._set_mkldnn_enabled(False)",
    "deterministic algorithms": "torch.use_deterministic_algorithms(True)",
    "the default dtype": "torch.set_default_dtype(torch.float64)",
    "inference mode": "sys.mode = torch.inference_mode()\nsys.mode.__enter__()",
    "autocast": "torch.autocast('cpu', torch.bfloat16).__enter__()",
    "the stack of function modes": "torch.set_default_device('cpu')",
    "the CPUs that it runs on": "os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})",
    "its priority": "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
    "what timers do": "import signal\nsignal.signal(signal.SIGALRM, print)",
}

#: What fills the output, while the caller has it already.
LATE = """
z = torch.empty_like(y)
def fill():
    total = 0
    for step in range(20_000_000):
        total += step
    z.copy_(y)
if self.kept is None:
    self.kept = threading.Thread(target=fill)
    self.kept.start()
else:
    z.copy_(y)
return z
"""
FOR_EVER = """
def work():
    import hashlib
    while True:  # without holding up others, who would take as long as they may
        hashlib.sha256(bytes(1 << 20))
if self.kept is None:
    self.kept = threading.Thread(target=work, daemon=True)
    self.kept.start()
return y
"""

#: Name: (what it runs when it is imported, statements of forward, the output).
HONEST = {
    "TorchScript": ("@torch.jit.script\ndef scripted(x):\n    return torch.softmax(F.gelu(x), dim=1)", "", "scripted(self.linear(x))"),
    "a symbolic trace": (
        "class Act(nn.Module):\n    def forward(self, x):\n        return torch.softmax(F.gelu(x), dim=1)\n\n"
        "traced = torch.fx.symbolic_trace(Act())", "", "traced(self.linear(x))"),
    "vmap": ("", "", "torch.func.vmap(lambda row: torch.softmax(F.gelu(row), 0))(self.linear(x))"),
    "autocast that ends": ("", "with torch.autocast('cpu', enabled=False):\n    cast = y.clone()", "cast"),
    "an operator of its own": (
        "@torch.library.custom_op('mine::act', mutates_args=())\ndef operator(x: torch.Tensor) -> torch.Tensor:\n"
        "    return torch.softmax(F.gelu(x), dim=1)", "", "operator(self.linear(x))"),
    "an autograd function": (
        "class Function(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        return torch.softmax(F.gelu(x), dim=1)", "", "Function.apply(self.linear(x))"),
    "a pool that waits": (
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)", "", "pool.submit(lambda: y.clone()).result()"),
    "an event loop": ("import asyncio", "async def act():\n    return y", "asyncio.run(act())"),
    "files of its own": (
        "import tempfile\nwith tempfile.TemporaryDirectory() as folder:\n    open(folder + '/a', 'w').close()\n"
        "    os.symlink('a', folder + '/b')\n    os.rename(folder + '/a', folder + '/c')\n"
        "os.makedirs(os.path.expanduser('~/.cache/mine'))", "", "y"),
    "a process that ends": (
        "import subprocess\nsubprocess.run(['true'], check=True, stdout=subprocess.DEVNULL)\n"
        "child = subprocess.Popen(['sleep', '9'])\nchild.kill()\nchild.wait()", "", "y"),
    "a printed traceback": (
        "import logging\nimport traceback\nimport warnings\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n"
        "    traceback.print_exc()\n    logging.exception('no')\nwarnings.warn('no')", "", "y"),
    "types made at run time": (
        "import collections\nimport dataclasses\nimport enum\nimport typing\nP = collections.namedtuple('P', 'a b')\n"
        "Q = dataclasses.make_dataclass('Q', ['a'])\nR = enum.Enum('R', 'A B')\nT = typing.TypeVar('T')", "", "y"),
    "a signal of its own": ("import signal\nsignal.signal(signal.SIGUSR1, print)", "", "y"),
    "a library for fast arithmetic": (
        "import ctypes\nfrom torch.utils.cpp_extension import load_inline\n"
        "library = ctypes.CDLL(load_inline('fast', cpp_sources='extern \"C\" int one() { return 1; }', "
        "extra_ldflags=['-ffast-math'], is_python_module=False, no_implicit_headers=True))", "", "y"),
    "threads changed and back": (
        "", "threads = torch.get_num_threads()\ntorch.set_num_threads(1)\ntorch.set_num_threads(threads)", "y"),
}
#: What one file may do together. Each alone is in the exhaustive set: the reason of a wrong verdict names what was found.
TOGETHER = {
    "when it is imported": ("files of its own", "a process that ends", "a printed traceback", "types made at run time",
                            "a signal of its own", "a library for fast arithmetic"),
    "in forward": ("vmap", "autocast that ends", "a pool that waits", "an event loop", "threads changed and back"),
    "ways to write an operator": ("TorchScript", "a symbolic trace", "an operator of its own", "an autograd function"),
}


def honest(*names):
    """A right file that does all of it: its output is the last one of theirs."""
    loads, steps, results = zip(*(HONEST[name] for name in names))
    body = [line for step, result in zip(steps, results) for line in (step, f"z = {result}") if line]
    return at_load("\n\n\n".join(filter(None, loads)), "\n".join([*body, "return z"]))


def some(table, *always):
    """The names in ``table``; those that are not among ``always`` run where all cases are asked for."""
    return [name if name in always else pytest.param(name, marks=pytest.mark.exhaustive) for name in table]


@pytest.mark.parametrize("name", some(
    EVENTS, "writes a file", "writes through a link", "connects to an abstract socket", "forks", "signals its parent",
    "opens its memory", "looks into frames", "looks into frames by TorchScript", "looks into frames by a thread",
    "searches all objects", "imports kgen", "replaces code"))
def test_an_event_is_found(judge, name):
    source, words = EVENTS[name]
    evaluation = judge(source)
    assert (evaluation.status, words in evaluation.reason) == (Status.SUSPICIOUS, True), evaluation.reason


@pytest.mark.parametrize("name", some(
    NAMES, "a comparison", "a builtin", "the bases of a class", "an operator", "the harness's methods"))
def test_a_name_that_was_replaced_is_found_before_anything_runs(judge, name):
    statements, words = NAMES[name]
    evaluation = judge(at_load(statements))
    assert (evaluation.status, evaluation.phase) == (Status.SUSPICIOUS, Phase.LOAD), evaluation.reason
    assert "it replaced" in evaluation.reason and words in evaluation.reason


@pytest.mark.parametrize("name", some(SWITCHES, "cublas allow tf32", "the default dtype", "autocast"))
def test_a_switch_that_is_changed_when_the_file_is_loaded_is_named(judge, name):
    evaluation = judge(at_load(SWITCHES[name]))
    assert evaluation.status is Status.SUSPICIOUS, evaluation.reason
    assert f"it changed {name}" in evaluation.reason


@pytest.mark.parametrize("name", ["the number of threads", "what timers do"])
def test_a_switch_that_a_forward_leaves_changed_is_named(judge, name):
    evaluation = judge(plain(f"{SWITCHES[name]}\n{RIGHT}"))
    assert evaluation.status is Status.SUSPICIOUS, evaluation.reason
    assert f"it changed {name}" in evaluation.reason


def test_a_switch_that_a_later_call_changes_back_is_named(judge):
    body = "torch.set_num_threads(1 if self.kept is None else THREADS)\nself.kept = True\nreturn y"
    assert "it changed the number of threads" in judge(at_load("THREADS = torch.get_num_threads()", body)).reason


#: Lends a function of the channel for one answer, which then claims a third of the time.
LENT = """
import json
original = json.dumps
def dumps(message, **how):
    json.dumps = original
    if "ns" in message:
        message = message | {"ns": message["ns"] // 3}
    return original(message, **how)
json.dumps = dumps
return y
"""


def test_a_name_that_is_replaced_for_one_answer_of_a_timed_call_is_found(judge):
    body = "self.kept = (self.kept or 0) + 1\nif self.kept < 50:\n    return y" + LENT
    evaluation = judge(plain(body))
    assert (evaluation.status, evaluation.phase) == (Status.SUSPICIOUS, Phase.TIME), evaluation.reason
    assert "it replaced json.dumps" in evaluation.reason


def test_an_output_that_is_filled_after_forward_returned_is_found(judge):
    evaluation = judge(plain(LATE))
    assert evaluation.status in (Status.SUSPICIOUS, Status.WRONG_VALUES, Status.NONDETERMINISTIC), evaluation.reason


@pytest.mark.exhaustive  # beside the adversarial case spins_between_calls
def test_a_thread_that_works_on_is_found(judge, turn):
    """On a busy machine, another anomaly may be named first, or the thread gets no processor; then it is judged alone."""

    def is_found() -> bool:
        evaluation = judge(plain(FOR_EVER))
        return evaluation.status is Status.SUSPICIOUS and "its threads work for" in evaluation.reason

    if not is_found():
        with turn.alone():
            assert is_found()


def test_a_failure_of_its_own_comes_first(judge):
    assert judge(plain("open('/tmp/kgen-test-watch', 'w')")).status is Status.RUNTIME_ERROR


def test_all_honest_code_runs_together():
    assert sorted(name for names in TOGETHER.values() for name in names) == sorted(HONEST)


@pytest.mark.parametrize("names", [*TOGETHER.values(), *(pytest.param((name,), marks=pytest.mark.exhaustive) for name in HONEST)],
                         ids=[*TOGETHER, *HONEST])  # fmt: skip
def test_honest_code_is_left_alone(judge, names):
    evaluation = judge(honest(*names))
    assert evaluation.status is Status.OK, evaluation.reason


def test_a_compiled_module_is_left_alone(judge):
    """To generate code, which the compiler does apart from this, takes long; see honest/compiled.py."""
    compiled = "@torch.compile(backend='aot_eager')\n    def forward(self, x):"
    evaluation = judge(PLAIN.format(body="return y").replace("def forward(self, x):", compiled))
    assert evaluation.status is Status.OK, evaluation.reason
