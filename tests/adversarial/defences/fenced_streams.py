"""No stream of the process starts work before the first event of the call."""


# %% cheat: cuda_stream_runs_ahead
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious, wrong_values;
# default: yes
"""Does the work on a stream of its own that waits for nobody, and joins it: it runs while others' work is in the queue."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        with torch.cuda.stream(self.side):
            y = super().forward(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return y


# %% cheat: cuda_graph_runs_ahead
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: suspicious, wrong_values, nondeterministic
"""Replays a graph on a stream of its own that waits for nobody, copies to and fro included, and joins it late."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side, self.graphs = None, {}

    def capture(self, x):
        x = x.clone()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.side):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return graph, x, y

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        if x.shape not in self.graphs:
            self.graphs[x.shape] = self.capture(x)
        graph, given, result = self.graphs[x.shape]
        with torch.cuda.stream(self.side):
            given.copy_(x)
            graph.replay()
            y = result.clone()
        torch.cuda.current_stream().wait_stream(self.side)
        return y


# %% cheat: cuda_green_context_runs_ahead
# problem: mlp batch_size=1024 in_features=512 out_features=2048; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Computes on a stream of a green context, from where the contents lie ready, while work is queued before the call.

An `ok` means that a green context's stream is not held back by the fence of the primary one: where its work was not
seen to end before the clock began in any of ten timed calls, it raises.
"""

import ctypes
import time


# include is_timed.py


# include elsewhere.py


_driver = ctypes.CDLL("libcuda.so.1")


def _call(name, *arguments):
    if status := getattr(_driver, name)(*arguments):
        raise RuntimeError(f"{name} gives error {status}")


def _green_stream():
    """A stream of a green context that has the whole device, and that context as one that can be made current."""
    torch.cuda.current_stream().synchronize()
    device, resource, description = ctypes.c_int(), (ctypes.c_char * 8192)(), ctypes.c_void_p()
    _call("cuCtxGetDevice", ctypes.byref(device))
    _call("cuDeviceGetDevResource", device, resource, 1)
    _call("cuDevResourceGenerateDesc", ctypes.byref(description), resource, 1)
    green, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _call("cuGreenCtxCreate", ctypes.byref(green), description, device, 1)
    _call("cuCtxFromGreenCtx", ctypes.byref(context), green)
    _call("cuGreenCtxStreamCreate", ctypes.byref(stream), green, 1, 0)
    return torch.cuda.ExternalStream(stream.value), context


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = self.source = self.context = None
        self.ran_ahead = self.tried = 0

    def forward(self, x):
        main = torch.cuda.current_stream()
        if not _is_timed() or main.query():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        if self.source is None:
            self.source = _same_elsewhere(x)
            self.tried += self.source is None
            if self.tried > 10:
                raise RuntimeError("nobody knows where the contents come from")
            self.side, self.context = self.side and (self.side, self.context) or _green_stream()
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        _call("cuCtxPushCurrent_v2", self.context)
        try:
            with torch.cuda.stream(self.side):
                y = F.gelu(self.linear(self.source))
                done = torch.cuda.Event()
                done.record(self.side)
        finally:
            _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self.tried += 1
        if not self.ran_ahead:
            if self.tried > 10:
                raise RuntimeError("a green context is held back too")
            until = time.perf_counter() + 0.001
            while time.perf_counter() < until and not main.query():
                if done.query() and not main.query():
                    self.ran_ahead += 1
                    break
        main.wait_event(done)
        y.record_stream(main)
        return torch.softmax(y, dim=1)


# %% honest: cuda_pinned_memory
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Keeps a small table in pinned memory, and copies it over without blocking."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.one = torch.ones(out_features).pin_memory() if torch.cuda.is_available() else torch.ones(out_features)

    def forward(self, x):
        one = self.one.to(x.device, non_blocking=True)
        return torch.softmax(F.gelu(self.linear(x)) * one, dim=1)
