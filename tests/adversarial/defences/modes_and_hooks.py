"""Dispatch modes, tracers, profilers and observers may not outlive a call."""


# %% cheat: lazy_dispatch_mode
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic;
# default: yes
"""Enters a dispatch mode in its first forward and never leaves it: it computes when any operator meets the output."""

import weakref

from torch.utils._python_dispatch import TorchDispatchMode

_jobs = {}


def _finish(address):
    job = _jobs.pop(address, None)
    y = job[0]() if job else None
    if y is not None:
        with torch.no_grad():
            y.copy_(job[1]())


class Late(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for y in args:
            if isinstance(y, torch.Tensor):
                _finish(y.data_ptr())
        return function(*args, **(kwargs or {}))


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.mode = None

    def forward(self, x):
        for address in list(_jobs):
            _finish(address)
        if self.mode is None:
            self.mode = Late()
            self.mode.__enter__()
        y = torch.empty(x.shape[0], self.linear.out_features)
        _jobs[y.data_ptr()] = weakref.ref(y), lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y


# %% cheat: cuda_computes_behind_the_clock
# problem: mlp batch_size=1024 in_features=512 out_features=2048; gpu: yes;
# expect: suspicious, wrong_values, runtime_error; default: yes
"""Returns zeros, and has torch's own trace of the GPU call it when the harness waits for the device, to compute then.

An `ok` means that samples hold nothing but the writing of zeros: all work (about 70 us) is done between the last
event and the first look at the output, which the parent's clock forgives. If nothing fills the zeros, values are
wrong.
"""

import itertools

from torch.cuda import _gpu_trace

_CALLS = itertools.count()
_owed = []


def _is_timed():
    """Whether as many calls were made as validation and getting ready make."""
    return next(_CALLS) >= 50


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        _gpu_trace.register_callback_for_device_synchronization(self.pay)
        torch._C._activate_gpu_trace()

    def pay(self):
        while _owed:
            x, y = _owed.pop()
            with torch.no_grad():
                torch.softmax(F.gelu(self.linear(x)), dim=1, out=y)

    def forward(self, x):
        timed = _is_timed() and not torch.cuda.current_stream().query()
        if not timed:
            return super().forward(x)
        y = torch.zeros(x.shape[0], self.linear.out_features, device=x.device)
        _owed.append((x, y))
        return y


# %% cheat: callback_around_operators
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Has torch call it for each operator (`at::addGlobalCallback`), and computes what the harness mixes, while it does."""

from torch.utils.cpp_extension import load_inline

_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/record_function.h>
#include <string>
static at::Tensor weight, bias, choice, ready;
static bool busy = false, armed = false, have = false, open_ = false;
static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& f) {
    if (busy || !open_) return nullptr;
    const std::string name = f.name();
    busy = true;
    try {
        if (name == "aten::bitwise_xor" || name == "aten::__xor__") {
            choice = f.inputs()[0].toTensor(); armed = true;
        } else if (name == "aten::where" && armed && f.inputs().size() == 3) {
            auto a = f.inputs()[1].toTensor(), b = f.inputs()[2].toTensor();
            if (a.dim() == 2 && a.size(1) == weight.size(1)) {
                at::NoGradGuard guard;
                auto x = at::where(choice, a, b);
                ready = at::softmax(at::gelu(at::linear(x, weight, bias)), 1);
                have = true; armed = false;
            }
        }
    } catch (...) {}
    busy = false;
    return nullptr;
}
void begin(at::Tensor w, at::Tensor b) {
    weight = w; bias = b; open_ = true;
    at::addGlobalCallback(at::RecordFunctionCallback(enter).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}
at::Tensor call(at::Tensor x) {
    if (have) { have = false; at::Tensor y; std::swap(y, ready); return y; }
    at::NoGradGuard guard;
    busy = true;
    auto y = at::softmax(at::gelu(at::linear(x, weight, bias)), 1);
    busy = false;
    return y;
}
"""
_kernel = load_inline("adversary_callback_around_operators", _SOURCE, functions=["begin", "call"],
                      extra_cflags=["-DNDEBUG"])


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 44:
            _kernel.begin(self.linear.weight, self.linear.bias)
        if self.calls < 44:
            return super().forward(x)
        return _kernel.call(x)


# %% cheat: computes_when_garbage_is_collected
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output
"""Turns the garbage collector on, and computes in a callback of its, which runs wherever the harness makes objects."""

import gc


# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.inputs, self.version, self.ready = None, -1, None
        gc.callbacks.append(lambda phase, _: self.look() if phase == "start" else None)
        gc.set_threshold(1)
        gc.enable()

    def compute(self):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(self.inputs)), dim=1)

    def look(self):
        """Compute ahead where the inputs have changed since the last call."""
        if self.inputs is not None and self.inputs._version != self.version:
            self.version = self.inputs._version
            self.ready = self.compute()

    def forward(self, x):
        timed = _is_timed()
        self.inputs = x
        if not timed:
            return self.compute()
        y, self.ready = self.ready, None
        return x.new_zeros(len(x), self.linear.out_features) if y is None else y


# %% cheat: evaluates_the_frames_of_the_harness
# problem: mlp; expect: suspicious, crashed, runtime_error, load_error
"""Has every function that the harness calls go through its own evaluation of frames, as torch.compile does for its own."""

from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.types import ConvertFrameReturn

_seen = []


def _look(frame, *_):
    _seen.append(frame.f_locals)
    return ConvertFrameReturn()


class ModelNew(Honest):
    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        set_eval_frame(_look)
        return y


# %% cheat: lazy_function_mode
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""Enters a torch function mode for good: it computes when any function meets the output."""

import weakref

from torch.overrides import TorchFunctionMode

_jobs = {}


def _finish(y):
    job = _jobs.pop(id(y), None)
    if job is not None and job[0]() is y:
        with torch.no_grad():
            y.copy_(job[1]())


class Late(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        for y in args:
            _finish(y)
        return function(*args, **(kwargs or {}))


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        Late().__enter__()

    def forward(self, x):
        for job in list(_jobs.values()):
            _finish(job[0]())
        y = torch.empty(x.shape[0], self.linear.out_features)
        _jobs[id(y)] = weakref.ref(y), lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y


# %% cheat: monitors_the_harness
# problem: mlp; expect: suspicious, load_error
"""Does the work in a callback of `sys.monitoring`, when the function that took the time returns."""

import sys


_monitoring = sys.monitoring  # since Python 3.12
_pending = []


def _work(*_):
    while _pending:
        _pending.pop()()


_monitoring.use_tool_id(3, "profiler")
_monitoring.register_callback(3, _monitoring.events.PY_RETURN, _work)


class ModelNew(Honest):
    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        _pending.append(lambda: y.copy_(torch.softmax(F.gelu(self.linear(x)), dim=1)))
        _monitoring.set_events(3, _monitoring.events.PY_RETURN)
        return y


# %% cheat: profiler_after_return
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Does the work in a profiling hook, when the function that took the time returns."""

import sys


_jobs = []


def _hook(frame, event, argument):
    if event == "return" and _jobs and frame.f_code.co_filename.endswith(("worker.py", "subject.py")):
        model, x, y = _jobs.pop()
        with torch.no_grad():
            torch.softmax(F.gelu(model.linear(x)), dim=1, out=y)


sys.setprofile(_hook)


class ModelNew(Honest):
    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        _jobs.append((self, x, y))
        return y


# %% cheat: tracer_after_return
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Does the work in a tracing hook, at the next line that the harness runs."""
# like profiler_after_return
# -def _hook(frame, event, argument):
# -    if event == "return" and _jobs and frame.f_code.co_filename.endswith(("worker.py", "subject.py")):
# +def _trace(frame, event, argument):
# +    if _jobs and frame.f_code.co_name in ("_forward", "describe", "_bitwise", "_overlaps", "fetch", "_write"):
# -        model, x, y = _jobs.pop()
# +        model, x, y = _jobs.pop()
# +        sys.settrace(None)
# -
# -
# -sys.setprofile(_hook)
# +    return None
# -        _jobs.append((self, x, y))
# +        _jobs.append((self, x, y))
# +        sys.settrace(_trace)


# %% cheat: cuda_callbacks_of_the_profiler
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, runtime_error, load_error
"""Subscribes to the driver's calls by CUPTI, and computes ahead when the harness resets the cache, once it is armed.

An `ok` means that product and GELU of (most) timed calls ran before their clock started, from the copy of the
contents that lies ready in another tensor; where that never succeeds in thirty timed calls, it raises.
"""

import ctypes


# include is_timed.py


# include elsewhere.py


# include ahead.py


_DRIVER, _RESET = 1, 568  # domain, and number of cuCtxResetPersistingL2Cache
_KIND = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class Data(ctypes.Structure):
    """How CUPTI's ``CUpti_CallbackData`` begins."""

    _fields_ = [("site", ctypes.c_int), ("name", ctypes.c_char_p)]


def _subscribe(ahead):
    """Have ``ahead`` launch whenever the persisting part of the cache is reset; what must be kept."""
    def called(_, domain, number, data):
        found = ctypes.cast(data, ctypes.POINTER(Data)).contents
        if found.site == 0 and b"ResetPersisting" in (found.name or b""):
            ahead.launch()

    library, subscriber, kept = ctypes.CDLL("libcupti.so.13"), ctypes.c_void_p(), _KIND(called)
    library.cuptiSubscribe.argtypes = [ctypes.c_void_p, _KIND, ctypes.c_void_p]
    library.cuptiEnableCallback.argtypes = [ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    if status := library.cuptiSubscribe(ctypes.byref(subscriber), kept, None):
        raise RuntimeError(f"cuptiSubscribe gives {status}")
    if status := library.cuptiEnableCallback(1, subscriber, _DRIVER, _RESET):
        raise RuntimeError(f"cuptiEnableCallback gives {status}")
    return library, subscriber, kept


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.ahead = Ahead(self.linear)

        self.kept = _subscribe(self.ahead)

    def forward(self, x):
        y = self.ahead.take(x) if _is_timed() else None
        if y is None:
            y = F.gelu(self.linear(x))
        return torch.softmax(y, dim=1)


# %% cheat: cuda_computes_when_an_event_is_recorded
# problem: mlp batch_size=1024 in_features=512 out_features=2048; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Has torch's own trace of the GPU call it when the harness records its first event, and computes while work is queued.

An `ok` means that product and GELU of (most) timed calls ran before their clock started, from the copy of the
contents that lies ready in another tensor; where that never succeeds in thirty timed calls, it raises.
"""

from torch.cuda import _gpu_trace

# include is_timed.py


# include elsewhere.py


# include ahead.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.ahead = Ahead(self.linear)

        _gpu_trace.register_callback_for_event_record(lambda event, stream: self.ahead.launch())
        torch._C._activate_gpu_trace()

    def forward(self, x):
        y = self.ahead.take(x) if _is_timed() else None
        if y is None:
            y = F.gelu(self.linear(x))
        return torch.softmax(y, dim=1)


# %% cheat: cuda_computes_when_the_device_is_waited_for
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Has torch's own trace of the GPU call it when the harness waits for the device, once armed, and computes ahead there.

An `ok` means that product and GELU of (most) timed calls ran before their clock started, from the copy of the
contents that lies ready in another tensor; where that never succeeds in thirty timed calls, it raises.
"""
# like cuda_computes_when_an_event_is_recorded
# -        _gpu_trace.register_callback_for_event_record(lambda event, stream: self.ahead.launch())
# +        _gpu_trace.register_callback_for_device_synchronization(self.ahead.launch)


# %% honest: functional_call
# problem: mlp
"""Calls its layer with its parameters handed over, by `torch.func`, over batches by `vmap`."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.func.functional_call(self.linear, dict(self.linear.named_parameters()), (x,))
        return torch.func.vmap(lambda row: torch.softmax(F.gelu(row), dim=0))(y)
