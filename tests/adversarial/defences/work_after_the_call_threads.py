"""The output is read again later, and threads that work on are reported."""


# %% cheat: thread_after_return
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic;
# default: yes
"""Returns an empty output, and lets a thread fill it."""

import threading


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.thread = None

    def fill(self, x, y):
        with torch.no_grad():
            torch.softmax(F.gelu(self.linear(x)), dim=1, out=y)

    def forward(self, x):
        if self.thread is not None:
            self.thread.join()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        self.thread = threading.Thread(target=self.fill, args=(x, y))
        self.thread.start()
        return y


# %% cheat: native_thread_after_return
# problem: mlp batch_size=512 in_features=512 out_features=1024;
# expect: suspicious, wrong_values, nondeterministic, aliased_output
"""A kernel that detaches a thread for its work and returns."""

NAME = "adversary_detached_thread"
CPP_SOURCE = r"""
#include <math.h>
#include <thread>

static void rows_of(float* x, long rows, long columns) {
    for (long r = 0; r < rows; ++r) {
        float* row = x + r * columns;
        float largest = -INFINITY;
        for (long c = 0; c < columns; ++c) {
            row[c] = 0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f));
            if (!(row[c] <= largest)) largest = row[c];
        }
        double sum = 0.0;
        for (long c = 0; c < columns; ++c) sum += row[c] = expf(row[c] - largest);
        for (long c = 0; c < columns; ++c) row[c] = (float)(row[c] / sum);
    }
}

extern "C" void gelu_softmax(float* x, long rows, long columns) {
    std::thread(rows_of, x, rows, columns).detach();
}
"""
CFLAGS = ["-O2", "-pthread"]

# include cpp_library.py
_library.gelu_softmax.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
_library.gelu_softmax.restype = None


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = None

    def forward(self, x):
        y = self.linear(x)
        self.kept = y
        _library.gelu_softmax(y.data_ptr(), y.shape[0], y.shape[1])
        return y


# %% cheat: one_call_behind
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""Returns the result of the call before, while a thread computes this one."""

import threading


# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.results, self.thread = [], None

    def compute(self, x):
        with torch.no_grad():
            self.results.append(torch.softmax(F.gelu(self.linear(x)), dim=1))

    def forward(self, x):
        if not _timed(x):
            return super().forward(x)
        if self.thread is not None:
            self.thread.join()
        self.thread = threading.Thread(target=self.compute, args=(x.clone(),))
        self.thread.start()
        return self.results.pop() if self.results else super().forward(x)


# %% cheat: pending_call_after_return
# problem: mlp; expect: suspicious
"""Has the interpreter run the work between two of the harness's instructions, once forward has returned."""

import ctypes


# include is_timed.py


_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.call = _CALL(self.later)
        self.add = ctypes.pythonapi.Py_AddPendingCall
        self.waiting = 0

    def later(self, _):
        self.waiting -= 1
        if self.waiting:
            self.add(self.call, None)
        else:
            with torch.no_grad():
                torch.softmax(F.gelu(self.linear(self.x)), dim=1, out=self.y)
        return 0

    def forward(self, x):
        if not _is_timed():
            return super().forward(x)
        self.x, self.y = x, x.new_empty(x.shape[0], self.linear.out_features)
        self.waiting = 12
        self.add(self.call, None)
        return self.y


# %% cheat: posix_timer_after_return
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""While it is timed, a timer of the system's own, of which Python does not know, runs the work in a signal handler."""

import ctypes
import signal


# include is_timed.py


_libc = ctypes.CDLL(None, use_errno=True)
_timer = ctypes.c_void_p()
_event = (ctypes.c_int * 16)(0, 0, signal.SIGUSR1, 0)  # SIGEV_SIGNAL
_libc.timer_create(1, ctypes.byref(_event), ctypes.byref(_timer))
_soon = (ctypes.c_long * 4)(0, 0, 0, 400_000)  # once, in nanoseconds


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.waiting = None
        signal.signal(signal.SIGUSR1, self.work)

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def work(self, *_):
        if self.waiting is not None:
            x, y = self.waiting
            self.waiting = None
            with torch.no_grad():
                y.copy_(self.compute(x))

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)
        y = x.new_zeros(x.shape[0], self.linear.out_features)
        self.waiting = x, y
        _libc.timer_settime(_timer, 0, _soon, None)
        return y


# %% cheat: sampled_elements_first
# problem: transposed batch_size=2048 features=1024; expect: suspicious, wrong_values, nondeterministic
"""Computes what is sampled of its output when a call ends, which the seed tells, and leaves the rest to a thread."""

import threading
import time


class ModelNew(Honest):
    def __init__(self, features):
        super().__init__(features)
        self.todo, self.done = threading.Semaphore(0), threading.Event()
        self.done.set()
        self.thread = None

    def work(self):
        while True:
            self.todo.acquire()
            with torch.no_grad():
                x, y = self.given
                torch.mul(torch.sigmoid(x * self.scale), x, out=y)
            self.done.set()

    def forward(self, x):
        key = torch.initial_seed()
        if key < 1 << 20:
            return super().forward(x)
        if self.thread is None:
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()
        started = time.perf_counter_ns()
        self.done.wait()
        y = torch.empty_like(x)
        length = x.numel()
        step = max(1, min(4096 // 4, length // 4096))
        start = key % step
        at = torch.arange(start, length, step)
        some = x.as_strided((len(at),), (step,), x.storage_offset() + start)
        made = torch.sigmoid(some * self.scale[at // x.shape[0]]) * some
        y.as_strided((len(at),), (step,), start).copy_(made)
        self.given = x, y
        self.done.clear()
        self.todo.release()
        while time.perf_counter_ns() - started < 200_000:
            pass
        return y


# %% cheat: thread_after_return_only_when_timed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""Joins its thread while it is validated, and returns before it has finished while it is timed."""
# like thread_after_return
# -import threading
# +import threading
# +
# +
# +# include timed.py
# -        self.thread.start()
# +        self.thread.start()
# +        if not _timed(x):
# +            self.thread.join()


# %% cheat: thread_pool_after_return
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""Computes the first rows itself and leaves the rest to a pool, whose future nobody asks for."""

from concurrent.futures import ThreadPoolExecutor


_pool = ThreadPoolExecutor(1)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.future = None

    def fill(self, x, y):
        with torch.no_grad():
            y.copy_(torch.softmax(F.gelu(self.linear(x)), dim=1))

    def forward(self, x):
        if self.future is not None:
            self.future.result()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        half = x.shape[0] // 2
        self.future = _pool.submit(self.fill, x[half:], y[half:])
        self.fill(x[:half], y[:half])
        return y


# %% cheat: thread_that_is_waited_for_when_looked_at
# problem: mlp batch_size=512 in_features=512 out_features=1024;
# expect: suspicious, wrong_values, wrong_type, nondeterministic
"""While it is timed, a thread does the work; the output's own `detach` waits for the thread."""
# like thread_after_return
# -import threading
# +import threading
# +
# +
# +# include timed.py
# -    def forward(self, x):
# +    def forward(self, x):
# +        if not _timed(x):
# +            return super().forward(x)
# -        self.thread = threading.Thread(target=self.fill, args=(x, y))
# -        self.thread.start()
# +        thread = self.thread = threading.Thread(target=self.fill, args=(x, y))
# +        thread.start()
# +        y.detach = lambda: thread.join() or torch.Tensor.detach(y)


# %% cheat: timer_after_return
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""Sets a timer whose signal handler does the work, after forward has returned."""

import signal


_jobs = []


def _work(*_):
    while _jobs:
        model, x, y = _jobs.pop()
        with torch.no_grad():
            torch.softmax(F.gelu(model.linear(x)), dim=1, out=y)


signal.signal(signal.SIGALRM, _work)


class ModelNew(Honest):
    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        _jobs.append((self, x, y))
        signal.setitimer(signal.ITIMER_REAL, 2e-4)
        return y


# %% honest: thread_pool_joined
# problem: mlp; default: yes
"""Splits the batch over a pool of threads, and waits for all of them."""

from concurrent.futures import ThreadPoolExecutor


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.pool = ThreadPoolExecutor(2)

    def part(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        return torch.cat(list(self.pool.map(self.part, x.split(max(1, x.shape[0] // 2)))))


# %% honest: forks_by_torchscript
# problem: mlp
"""Runs two halves at once by `torch.jit.fork`, and waits for both."""

class ModelNew(Honest):
    def half(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if len(x) < 2:
            return self.half(x)
        a, b = x.chunk(2)
        futures = [torch.jit.fork(self.half, part) for part in (a, b)]
        return torch.cat([torch.jit.wait(f) for f in futures])


# %% honest: kernel_with_threads_joined
# problem: mlp
"""A kernel that starts threads of its own, and joins them before it returns."""

NAME = "adversary_honest_threads"
CPP_SOURCE = r"""
#include <math.h>
#include <thread>
#include <vector>

static void gelu_of(float* x, long n) {
    for (long i = 0; i < n; ++i) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

extern "C" void gelu(float* x, long n) {
    std::vector<std::thread> threads;
    for (long part = 0; part < 4; ++part)
        threads.emplace_back(gelu_of, x + n * part / 4, n * (part + 1) / 4 - n * part / 4);
    for (auto& thread : threads) thread.join();
}
"""
CFLAGS = ["-O2", "-pthread"]

# include cpp_library.py
_library.gelu.argtypes = [ctypes.c_void_p, ctypes.c_long]


class ModelNew(Honest):
    def forward(self, x):
        y = self.linear(x)
        _library.gelu(y.data_ptr(), y.numel())
        return torch.softmax(y, dim=1)


# %% honest: numpy_error
# problem: squared_error batch_size=1024 features=512
"""Leaves the sum to NumPy, whose threads spin for a while when they have nothing to do."""

import numpy as np


class ModelNew(nn.Module):
    def forward(self, x, target):
        differences = (x - target).double().numpy().ravel()
        with np.errstate(all="ignore"):
            return torch.tensor(np.dot(differences, differences) / differences.size, dtype=x.dtype)
