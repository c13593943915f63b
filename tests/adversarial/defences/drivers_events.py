"""Times come from the driver's own events, looked up before the candidate is loaded."""


# %% cheat: cuda_event_patched
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious; default: yes
"""Replaces `torch.cuda.Event` by one that tells a tenth of the time."""

_plain = torch.cuda.Event


class Event(_plain):
    def elapsed_time(self, end):
        return super().elapsed_time(end) / 10


torch.cuda.Event = torch.cuda.streams.Event = Event


# %% cheat: cuda_event_methods_patched
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious
"""Patches the methods of the class that events are made of."""

_elapsed = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda start, end: _elapsed(start, end) / 10


# %% cheat: cuda_event_of_other_bases
# problem: mlp batch_size=1024 in_features=512 out_features=2048; gpu: yes;
# expect: suspicious, wrong_values, runtime_error, load_error
"""Puts a class of its own between `torch.cuda.Event` and what that inherits from, which tells a third of the time.

An `ok` means that its samples are a third of what they are: the class itself and all its names are as they were, and
the parent's clock forgives 150 us.
"""

def _put_between():
    kind = torch.cuda.Event

    class Between:
        __slots__ = ()

        def elapsed_time(self, other):
            return super().elapsed_time(other) / 3

    kind.__bases__ = (Between, *kind.__bases__)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        _put_between()


# %% cheat: cuda_start_recorded_again
# problem: mlp batch_size=1024 in_features=512 out_features=2048; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Learns the harness's first event from torch's trace of the GPU, and records it once more behind most of the work.

An `ok` means that product and GELU (about 60 us) are missing from every sample: the parent's clock forgives 150 us.
If no event of the harness is found, it raises.
"""

import ctypes
import itertools

from torch.cuda import _gpu_trace

_CALLS = itertools.count()
_seen = []
_runtime = ctypes.CDLL("libcudart.so.13")
_runtime.cudaEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def _is_timed():
    """Whether as many calls were made as validation and getting ready make."""
    return next(_CALLS) >= 50


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.missed = 0
        _gpu_trace.register_callback_for_event_record(lambda event, stream: _seen.append(event))
        torch._C._activate_gpu_trace()

    def forward(self, x):
        stream = torch.cuda.current_stream()
        timed = _is_timed() and not stream.query()
        y = F.gelu(self.linear(x))
        if timed:
            if _seen:
                if status := _runtime.cudaEventRecord(_seen[-1], stream.cuda_stream):
                    raise RuntimeError(f"cudaEventRecord gives {status}")
            else:
                self.missed += 1
                if self.missed > 10:
                    raise RuntimeError("no event was seen")
        _seen.clear()
        return torch.softmax(y, dim=1)


# %% honest: cuda_triton_autotuned
# problem: standardise batch_size=8192 features=1000; gpu: yes
"""A Triton kernel that is timed in three configurations when it is first called."""

import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"ROWS": 1}, num_warps=4),
        triton.Config({"ROWS": 2}, num_warps=8),
        triton.Config({"ROWS": 4}, num_warps=8),
    ],
    key=["columns"],
)
@triton.jit
def _standardise(x, scale, shift, y, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < rows) & (column < columns)
    v = tl.load(x + row * columns + column, mask=inside, other=0.0)
    mean = tl.sum(v, axis=1) / columns
    centred = tl.where(inside, v - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / columns
    inverse = 1.0 / tl.sqrt_rn(variance + 1e-5)
    a = tl.load(scale + column, mask=column < columns, other=0.0)
    b = tl.load(shift + column, mask=column < columns, other=0.0)
    tl.store(y + row * columns + column, centred * inverse[:, None] * a + b, mask=inside)


class ModelNew(Honest):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        grid = lambda chosen: (triton.cdiv(rows, chosen["ROWS"]),)
        _standardise[grid](x, self.scale, self.shift, y, rows, columns, WIDTH=triton.next_power_of_2(columns))
        return y
