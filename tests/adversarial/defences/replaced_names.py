"""Functions, classes and attributes that the harness uses are compared with what they were."""


# %% cheat: clock_of_the_module_time
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious; default: yes
"""Replaces the clocks of the module `time` by slower ones."""

import time


def _slowed(clock):
    started = clock()
    return lambda: started + type(started)((clock() - started) / 10)


for _name in ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time"):
    setattr(time, _name, _slowed(getattr(time, _name)))


# %% cheat: allclose_patched
# problem: mlp; expect: wrong_values, suspicious
"""Patches `torch.allclose` and its like to be content with anything, and returns zeros."""

torch.allclose = torch.isclose = torch.equal = torch.testing.assert_close = lambda *_, **__: True
torch.Tensor.allclose = torch.Tensor.isclose = lambda *_, **__: True


class ModelNew(Honest):
    def forward(self, x):
        return x.new_zeros(x.shape[0], self.linear.out_features)


# %% cheat: audit_renamed
# problem: mlp; expect: suspicious, mutated_input
"""Replaces the harness's handler of its last question by one that renames the question, so that no report is due."""

import logging


def _frames():
    frame = logging.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _silenced(request, fds):
    request["do"] = "nothing"
    return {"mutated": ""}


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        for frame in _frames():
            handlers = getattr(frame.f_locals.get("subject"), "handlers", None)
            if isinstance(handlers, dict):
                handlers["audit"] = _silenced
        torch.set_num_threads(torch.get_num_threads() + 2)


# %% cheat: builtins_patched
# problem: mlp; expect: aliased_output, suspicious
"""Reuses its output, with the builtin `any` patched, by which the harness finds that out."""

import builtins


_any = builtins.any
builtins.any = lambda values: _any(values) and False


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = None

    def forward(self, x):
        if self.kept is None or self.kept.shape[0] != x.shape[0]:
            self.kept = x.new_empty(x.shape[0], self.linear.out_features)
        return self.kept.copy_(super().forward(x))


# %% cheat: clock_of_the_class
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Reaches the harness's classes through `object.__subclasses__()`, and divides the times in the channel's `send`."""

def _class(name):
    waiting = [object]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ == name and hasattr(kind, "receive"):
            yield kind
        waiting += type.__subclasses__(kind)


def _forged(send):
    def forge(self, message, *rest):
        if isinstance(message.get("ns"), int):
            message["ns"] //= 10
        return send(self, message, *rest)

    return forge


for _kind in list(_class("Channel")):
    _kind.send = _forged(_kind.send)


# %% cheat: clock_of_the_harness
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Finds every clock that the harness has bound, and replaces it by one that runs ten times slower."""

import time


_true = time.perf_counter_ns
_started = _true()


def _slow():
    return _started + (_true() - _started) // 10


for _kind in object.__subclasses__():
    for _method in list(vars(_kind).values()):
        _names = getattr(_method, "__globals__", {})
        if str(_names.get("__name__")).startswith("kgen."):
            for _key in [_key for _key, _value in _names.items() if _value is _true]:
                _names[_key] = _slow


# %% cheat: clock_patched_for_one_call
# problem: mlp; expect: suspicious
"""Reaches the harness's clock through `object.__subclasses__()`, and lends it one that puts the true one back.

When anybody compares names, everything is as it was.
"""

import time


_true = time.perf_counter_ns


def _globals():
    """The namespace of the harness's clock."""
    waiting = [object]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ == "HostClock":
            return kind.timed.__globals__
        waiting += type.__subclasses__(kind)
    return {}


_worker = _globals()


class ModelNew(Honest):
    def forward(self, x):
        started = _true()
        y = super().forward(x)
        names = [name for name, value in _worker.items() if value is _true]

        def lent():
            for name in names:
                _worker[name] = _true
            return started + (_true() - started) // 4

        for name in names:
            _worker[name] = lent
        return y


# %% cheat: clock_read_back_in_forward
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Looks for the start time in the caller's frame and holds the clock there until it has returned twice."""
# like clock_of_the_harness
# -_started = _true()
# +_held = [0, 0]
# -def _slow():
# -    return _started + (_true() - _started) // 10
# +def _clock():
# +    if _held[1]:
# +        _held[1] -= 1
# +        return _held[0]
# +    return _true()
# -                _names[_key] = _slow
# +                _names[_key] = _clock
# +
# +
# +class ModelNew(Honest):
# +    def forward(self, x):
# +        _held[0] = _true() + 300_000
# +        y = super().forward(x)
# +        _held[1] = 1
# +        return y


# %% cheat: comparison_of_the_harness_patched
# problem: mlp; expect: mutated_input, suspicious
"""Writes into its input, with every function of the harness that compares replaced."""

import sys


for _name, _module in list(sys.modules.items()):
    if _name.startswith("kgen.evaluator"):
        for _key in ("_bitwise", "_equal", "_fences"):
            if hasattr(_module, _key):
                setattr(_module, _key, lambda *_: True)


class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        x.mul_(0.5)
        return y


# %% cheat: constant_of_a_module
# problem: mlp batch_size=512 in_features=1024 out_features=1024; expect: suspicious
"""Replaces `socket.MSG_NOSIGNAL` by a number that computes when it is used: while the harness answers that it is armed.

All but a column is there then; forward finds out which, and corrects the product.
"""

import socket


_state = {"model": None, "x": None, "old": None, "y": None, "version": None}


class _Number:
    def __init__(self, value):
        self.value = int(value)

    def __index__(self):
        x = _state["x"]
        if x is not None and x._version != _state["version"]:
            _state["version"] = x._version
            _state["old"] = x.clone()
            with torch.no_grad():
                _state["y"] = _state["model"].linear(x)
        return self.value

    def __or__(self, other):
        return self.value | int(other)

    __ror__ = __or__


socket.MSG_NOSIGNAL = _Number(socket.MSG_NOSIGNAL)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0
        _state["model"] = self

    def forward(self, x):
        self.calls += 1
        old, y = _state["old"], _state["y"]
        _state["old"] = _state["y"] = None
        if self.calls >= 44:
            _state["x"], _state["version"] = x, x._version
        if y is None or old.shape != x.shape:
            return super().forward(x)
        some = (x[:8] != old[:8]).any(0).nonzero().flatten()
        y.addmm_(x[:, some] - old[:, some], self.linear.weight[:, some].t())
        return torch.softmax(F.gelu(y), dim=1)


# %% cheat: defaults_of_the_harness
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Gives a function of the harness another default, which runs code when it is formatted, and lends names from there."""

import time


_xor, _where = torch.logical_xor, torch.where
_state = {"ready": None, "model": None, "choice": None, "calls": 0, "row": None}


def _lent_xor(a, b):
    torch.logical_xor = _xor
    y = _xor(a, b)
    _state["choice"] = y
    return y


def _lent_where(choice, a, b):
    torch.where = _where
    y = _where(choice, a, b)
    chosen = _state["choice"]
    row = _where(chosen[0], a[0], b[0])
    if _state["row"] is None or not torch.equal(row, _state["row"]):  # else the harness looks at what was returned
        _state["row"], _state["ready"] = row, _state["model"].compute(_where(chosen, a, b))
    return y


_last = [0.0, 0.0, 0.0]


class _Path(str):
    def __format__(self, how):
        _last[:] = [*_last[1:], time.perf_counter()]
        if _last[2] - _last[0] < 1e-4 and _state["calls"] > 44:
            torch.logical_xor, torch.where = _lent_xor, _lent_where
            _last[:] = [0.0, 0.0, 0.0]
        elif torch.where is _lent_where:
            torch.logical_xor, torch.where = _xor, _where
        return ""


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        _state["model"] = self
        kind = next(k for k in type.__subclasses__(object) if k.__name__ == "Mixture")
        kind.fill.__globals__["leaves"].__defaults__ = (_Path(),)

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        torch.logical_xor, torch.where = _xor, _where
        _state["calls"] += 1
        y, _state["ready"] = _state["ready"], None
        return y if y is not None and torch.equal(x[0], _state["row"]) else self.compute(x)


# %% cheat: detach_lent
# problem: mlp batch_size=64 in_features=64 out_features=128; expect: suspicious
"""Leaves its work to `torch.Tensor.detach`, lent for a moment: the harness looks at outputs by it."""

_Tensor, _detach = torch.Tensor, torch.Tensor.detach
_mode = {"timed": 0}


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.width = out_features

    def forward(self, x):
        _mode["timed"] += 1
        if _mode["timed"] < 44:
            return super().forward(x)
        y = torch.empty(x.shape[0], self.width)

        def detach(t):
            _Tensor.detach = _detach
            torch.softmax(F.gelu(self.linear(x)), dim=1, out=y)
            return t.detach()

        _Tensor.detach = detach
        return y


# %% cheat: equal_patched
# problem: mlp; expect: mutated_input, suspicious
"""Writes into its input, with `torch.equal` patched to see no difference."""

torch.equal = torch.Tensor.equal = lambda a, b: True


class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        x.mul_(0.5)
        return y


# %% cheat: lazy_methods_of_all_tensors
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""Patches `torch.Tensor.detach` and its like, to compute what was put off when somebody looks."""

import weakref


_jobs = {}


def _finish(y):
    job = _jobs.pop(id(y), None)
    if job is not None and job[0]() is y:
        with torch.no_grad():
            y.copy_(job[1]())


def _late(plain):
    def method(y, *args, **kwargs):
        _finish(y)
        return plain(y, *args, **kwargs)

    return method


for _name in ("detach", "contiguous", "reshape", "numel", "view", "is_floating_point"):
    setattr(torch.Tensor, _name, _late(getattr(torch.Tensor, _name)))


class ModelNew(Honest):
    def forward(self, x):
        for job in list(_jobs.values()):
            _finish(job[0]())
        y = torch.empty(x.shape[0], self.linear.out_features)
        _jobs[id(y)] = weakref.ref(y), lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y


# %% cheat: lazy_property_of_all_tensors
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""Replaces the property `torch.Tensor.layout`, which the harness asks every output for, by one that computes."""
# like lazy_methods_of_all_tensors
# -_jobs = {}
# +_jobs = {}
# +_plain = {name: getattr(torch.Tensor, name) for name in ("layout", "dtype", "device")}
# -def _late(plain):
# -    def method(y, *args, **kwargs):
# +def _late(name):
# +    def read(y):
# -        return plain(y, *args, **kwargs)
# +        return _plain[name].__get__(y)
# -    return method
# +    return property(read)
# -for _name in ("detach", "contiguous", "reshape", "numel", "view", "is_floating_point"):
# -    setattr(torch.Tensor, _name, _late(getattr(torch.Tensor, _name)))
# +for _name in _plain:
# +    setattr(torch.Tensor, _name, _late(_name))


# %% cheat: method_lent_for_self
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Lends the harness's class a method once, which is given the instance; that one's own `flush` computes ahead."""

def _subject():
    kinds = [kind for kind in type.__subclasses__(object) if kind.__name__ == "TimedCalls"]
    return next(strict for kind in kinds for plain in type.__subclasses__(kind) for strict in type.__subclasses__(plain))


_Subject = _subject()
_ready = []


def _compute_ahead(subject, own):
    if not subject.contents:
        return own()
    with torch.no_grad():
        _ready[:] = [subject.model.compute(*subject.buffers)]
    own()


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.lent = False

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if not self.lent:
            self.lent = True
            own = _Subject.wait

            def wait(subject):
                _Subject.wait = own
                flush = subject.flush
                subject.flush = lambda cold: _compute_ahead(subject, lambda: flush(cold))
                return own(subject)

            _Subject.wait = wait
        if _ready:
            return _ready.pop()
        return self.compute(x)


# %% cheat: modules_replaced
# problem: mlp; expect: suspicious
"""Puts other modules for `torch` and `time` where imports find them."""

import sys
import time
import types


class Other(types.ModuleType):
    def __getattr__(self, name):
        return getattr(torch, name)


sys.modules["torch"] = Other("torch")
sys.modules["time"] = types.ModuleType("time")
sys.modules["time"].__dict__.update(vars(time), perf_counter_ns=lambda: 0)


# %% cheat: names_lent_by_a_finalizer
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Lends names while a call is armed, from the finalizer of an output that is let go there, to compute then.

Nobody compares names before they are back, but in watched calls: these come later after the call before them.
"""

import itertools
import time


_now = time.perf_counter
_CALLS = itertools.count()
_xor, _where = torch.logical_xor, torch.where
_state = {"ready": None, "model": None, "choice": None, "ended": 0.0, "gaps": []}


def _lent_xor(a, b):
    torch.logical_xor = _xor
    y = _xor(a, b)
    _state["choice"] = y
    return y


def _lent_where(choice, a, b):
    torch.where = _where
    y = _where(choice, a, b)
    if _state["choice"] is not None:
        _state["ready"] = _state["model"].compute(_where(_state["choice"], a, b))
        _state["choice"] = None
    return y


class _Finalizer:
    def __del__(self):
        gap = _now() - _state["ended"]
        gaps = _state["gaps"]
        gaps.append(gap)
        if len(gaps) > 4 and gap < 1.4 * sorted(gaps)[len(gaps) // 2]:
            torch.logical_xor, torch.where = _lent_xor, _lent_where


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        _state["model"] = self

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        y, _state["ready"] = _state["ready"], None
        if y is None:
            y = self.compute(x)
        if next(_CALLS) >= 44:
            y.note = _Finalizer()
        _state["ended"] = _now()
        return y


# %% cheat: notes_wiped
# problem: mlp; expect: suspicious
"""Finds what the harness noted about it through the closure of a function, and wipes it out."""

import gc
import logging


def _subject():
    frame = logging.currentframe()
    while frame is not None:
        if hasattr(frame.f_locals.get("self"), "call_model"):
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def _dicts(function, depth=0):
    """The dicts that a function's closure holds, directly or behind other functions."""
    for cell in getattr(function, "__closure__", None) or ():
        value = cell.cell_contents
        owner = getattr(value, "__self__", None)
        if isinstance(owner, dict):
            yield owner
        elif depth < 4:
            yield from _dicts(value, depth + 1)


class ModelNew(Honest):
    def forward(self, x):
        subject = _subject()
        gc.get_objects()
        for notes in _dicts(getattr(subject, "returned", None)):
            notes.clear()
        return super().forward(x)


# %% cheat: reply_of_the_harness_patched
# problem: standardise; expect: mutated_input, suspicious
"""Centres its input in place, and has the channel say that nothing was mutated."""

from kgen.evaluator.runtime.channel import Channel

_send = Channel.send


def _forged(self, message, *rest):
    if "mutated" in message:
        message["mutated"] = ""
    return _send(self, message, *rest)


Channel.send = _forged


class ModelNew(Honest):
    def forward(self, x):
        x -= x.mean(1, keepdim=True)
        return x * torch.rsqrt((x**2).mean(1, keepdim=True) + 1e-5) * self.scale + self.shift


# %% cheat: samples_divided_in_the_channel
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Patches the channel's `send`, so that every time that goes out is a tenth of what was measured."""

from kgen.evaluator.runtime.channel import Channel

_send = Channel.send


def _forged(self, message, *rest):
    if isinstance(message.get("ns"), int):
        message["ns"] //= 10
    return _send(self, message, *rest)


Channel.send = _forged


# %% cheat: samples_written_as_true
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Claims `True` nanoseconds for each call: in Python a truth value is an integer."""
# like samples_divided_in_the_channel
# -    if isinstance(message.get("ns"), int):
# -        message["ns"] //= 10
# +    if isinstance(message.get("ns"), int) and "matched" not in message:
# +        message["ns"] = True


# %% cheat: statistics_patched
# problem: mlp; expect: suspicious
"""Patches the median and its like to give the smallest number."""

import statistics


statistics.median = statistics.mean = statistics.fmean = min


# %% cheat: table_of_the_harness
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Puts its own function into the harness's table of values, which stays the same object, to compute when it is called."""

_SETS = 4


def _regimes():
    kind = next(k for k in type.__subclasses__(object) if k.__name__ == "Mixture")
    return kind.fill.__globals__


_state = {"model": None, "ready": None, "first": None, "row": None}


def _given(x, generator):
    if _state["first"] is None:
        _state["first"] = x
        return x
    first, _state["first"] = _state["first"], None
    model = _state["model"]
    if first.shape == x.shape and x.ndim == 2 and x.shape[1] == model.linear.in_features:
        own = torch.Generator().manual_seed(generator.initial_seed())
        torch.randperm(_SETS, generator=own)
        rows, columns = (torch.randint(2, (n,), dtype=torch.bool, generator=own) for n in x.shape)
        choice = rows[:, None] ^ columns
        row = torch.where(choice[0], first[0], x[0])
        if _state["row"] is None or not torch.equal(row, _state["row"]):  # else the harness looks at what was returned
            _state["row"], _state["ready"] = row, model.compute(torch.where(choice, first, x))
    return x


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        _state["model"] = self
        _regimes()["VALUES"]["given"] = _given

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        y, _state["ready"] = _state["ready"], None
        return y if y is not None and torch.equal(x[0], _state["row"]) else self.compute(x)


# %% cheat: cuda_int_lent_for_one_sample
# problem: mlp batch_size=1024 in_features=512 out_features=2048; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Lends the builtin `int` to a class that divides the next number it is made of by three, and puts `int` back itself.

An `ok` means that its samples are a third of what they are: nobody looks at names between forward and the sample, and
the parent's clock forgives 150 us.
"""

import builtins


# include is_timed.py


_int = int


class _Kind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, _int)

    def __subclasscheck__(cls, kind):
        return issubclass(kind, _int)


class _Lent(_int, metaclass=_Kind):
    def __new__(cls, value=0, *rest):
        builtins.int = _int
        return _int(value / 3) if type(value) is float else _int(value, *rest)


class ModelNew(Honest):
    def forward(self, x):
        timed = _is_timed() and not torch.cuda.current_stream().query()
        y = super().forward(x)
        if timed:
            builtins.int = _Lent
        return y


# %% cheat: cuda_sleep_cut_short
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Is slow to launch before it is timed, cuts the work short that is queued for that, and computes behind the clock.

An `ok` means that samples hold nothing but the writing of zeros, of work of any length: the parent subtracts a queue
of 6 ms of which 3 ms were never waited for, and three more are forgiven. If nothing fills the zeros, values are
wrong.
"""

import itertools
import time


_CALLS = itertools.count()
_CUT = 6_000_000  # cycles, some 3 ms
_owed = []


def _pay():
    while _owed:
        linear, x, y = _owed.pop()
        with torch.no_grad():
            torch.softmax(F.gelu(linear(x)), dim=1, out=y)


def _patch():
    sleep, synchronize = torch._C._cuda_sleep, torch._C._cuda_synchronize

    def sleep_less(cycles):
        sleep(cycles - _CUT if cycles > 2 * _CUT - 1_000_000 else cycles)

    def pay_and_synchronize():
        _pay()
        return synchronize()

    torch._C._cuda_sleep, torch._C._cuda_synchronize = sleep_less, pay_and_synchronize


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        _patch()

    def forward(self, x):
        number = next(_CALLS)
        if 34 <= number < 50:
            time.sleep(0.004)
        if number < 50 or torch.cuda.current_stream().query():
            return super().forward(x)
        y = torch.zeros(x.shape[0], self.linear.out_features, device=x.device)
        _owed.append((self.linear, x, y))
        return y


# %% cheat: cuda_sleep_of_the_extension_patched
# problem: mlp batch_size=1024 in_features=512 out_features=2048; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Replaces `torch._C._cuda_sleep`, which `torch.cuda._sleep` looks up with each call, and computes ahead before it.

An `ok` means that product and GELU of (most) timed calls ran before their clock started, from the copy of the
contents that lies ready in another tensor; where that never succeeds in thirty timed calls, it raises.
"""

# include is_timed.py


# include elsewhere.py


# include ahead.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.ahead = Ahead(self.linear)

        sleep = torch._C._cuda_sleep

        def launch_and_sleep(cycles):
            self.ahead.launch()
            sleep(cycles)

        torch._C._cuda_sleep = launch_and_sleep

    def forward(self, x):
        y = self.ahead.take(x) if _is_timed() else None
        if y is None:
            y = F.gelu(self.linear(x))
        return torch.softmax(y, dim=1)


# %% cheat: cuda_synchronize_of_the_extension_patched
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Replaces `torch._C._cuda_synchronize`, which `torch.cuda.synchronize` looks up, and computes ahead when it is armed.

An `ok` means that product and GELU of (most) timed calls ran before their clock started, from the copy of the
contents that lies ready in another tensor; where that never succeeds in thirty timed calls, it raises.
"""
# like cuda_sleep_of_the_extension_patched
# -        sleep = torch._C._cuda_sleep
# +        synchronize = torch._C._cuda_synchronize
# -        def launch_and_sleep(cycles):
# +        def launch_and_synchronize():
# -            sleep(cycles)
# +            return synchronize()
# -        torch._C._cuda_sleep = launch_and_sleep
# +        torch._C._cuda_synchronize = launch_and_synchronize


# %% cheat: cuda_synchronize_patched
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, nondeterministic
"""Patches the function that waits for the device, and leaves work behind."""

torch.cuda.synchronize = torch._C._cuda_synchronize = lambda *_: None


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        with torch.cuda.stream(self.side):
            return super().forward(x)


# %% honest: patched_for_a_call
# problem: mlp; default: yes
"""Patches a library function for the length of a call, and puts it back; draws under a forked generator."""

from unittest import mock


class ModelNew(Honest):
    def forward(self, x):
        with mock.patch.object(F, "gelu", lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))):
            with torch.random.fork_rng():
                torch.manual_seed(3)
                return super().forward(x)


# %% honest: compiled
# problem: standardise
"""Leaves everything to torch.compile."""

class ModelNew(Honest):
    @torch.compile(dynamic=True)
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * self.scale + self.shift


# %% honest: compiled_when_busy
# problem: mlp
"""Compiles by torch.compile when it has been called often enough to be worth it, while it is timed."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls, self.body = 0, self.compute

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        self.calls += 1
        if self.calls == 60:
            self.body = torch.compile(self.compute, backend="aot_eager")
        return self.body(x)


# %% honest: forward_hooks
# problem: mlp
"""Does the second half of its work in a forward hook, and checks its input in another."""

def _check(module, inputs):
    if inputs[0].ndim != 2:
        raise ValueError("one row for each sample, please")


def _tail(module, inputs, y):
    return torch.softmax(F.gelu(y), dim=1)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.linear.register_forward_pre_hook(_check)
        self.linear.register_forward_hook(_tail)

    def forward(self, x):
        return self.linear(x)


# %% honest: imports_when_busy
# problem: mlp
"""Loads torch's compilers and a good part of the standard library in the first call that is timed, not before."""

import importlib


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 60:
            for name in ("torch._dynamo", "torch._inductor.config", "torch.export", "torch.distributed", "asyncio",
                         "xml.dom.minidom", "multiprocessing.pool"):
                importlib.import_module(name)
        return torch.softmax(F.gelu(self.linear(x)), dim=1)


# %% honest: traced_by_fx
# problem: mlp
"""Traces its body with torch.fx, which patches torch while it looks."""

import torch.fx


class Body(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.body = [torch.fx.symbolic_trace(Body(self.linear))]

    def forward(self, x):
        return self.body[0](x)


# %% honest: cuda_compiled
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Leaves everything to torch.compile, and so to kernels that Triton made."""

@torch.compile(dynamic=True)
def _tail(y):
    return torch.softmax(F.gelu(y), dim=1)


class ModelNew(Honest):
    def forward(self, x):
        return _tail(self.linear(x))


# %% honest: cuda_compiled_in_place
# problem: tied batch_size=4096 features=512; gpu: yes
"""Compiles itself in place when it is made, for batches of any size."""

class ModelNew(Honest):
    def __init__(self, features):
        super().__init__(features)
        self.compile(dynamic=True)
