"""Elements on each page of the output are read before the call's time is answered."""


# %% cheat: computes_on_page_faults
# problem: standardise batch_size=1024 features=512; expect: suspicious; default: yes
"""Returns, while it is timed, memory that nobody may read, and computes in the handler of the signal which that raises."""

import weakref

NAME = "adversary_page_faults"
CPP_SOURCE = r"""
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

static float *to, *from, *scale, *shift;
static long rows, columns, bytes;

static void compute(int, siginfo_t* info, void*) {
    if (info->si_addr < (void*)to || info->si_addr >= (void*)((char*)to + bytes)) {
        signal(SIGSEGV, SIG_DFL);
        return;
    }
    mprotect(to, bytes, PROT_READ | PROT_WRITE);
    for (long n = 0; n < 6 * rows; ++n) {  // six times, so that a small problem hides as much as a large one
        long r = n % rows;
        const float* x = from + r * columns;
        double mean = 0.0, square = 0.0;
        for (long c = 0; c < columns; ++c) mean += x[c];
        mean /= columns;
        for (long c = 0; c < columns; ++c) square += (x[c] - mean) * (x[c] - mean);
        double by = 1.0 / sqrt(square / columns + 1e-5);
        for (long c = 0; c < columns; ++c) to[r * columns + c] = (float)((x[c] - mean) * by * scale[c] + shift[c]);
    }
}

extern "C" float* put_off(float* x, float* a, float* b, long r, long c) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = compute;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    from = x, scale = a, shift = b, rows = r, columns = c, bytes = (r * c * 4 + 4095) & ~4095l;
    to = (float*)mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return to;
}

extern "C" void give_back(float* start, long size) { munmap(start, size); }
"""
CFLAGS = ["-O2"]

# include cpp_library.py
_library.put_off.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
_library.put_off.restype = ctypes.c_void_p
_library.give_back.argtypes = [ctypes.c_void_p, ctypes.c_long]


class ModelNew(Honest):
    def __init__(self, features):
        super().__init__(features)
        self.rows = set()

    def forward(self, x):
        rows, columns = x.shape
        self.rows.add(rows)
        start = _library.put_off(x.data_ptr(), self.scale.data_ptr(), self.shift.data_ptr(), rows, columns)
        memory = (ctypes.c_float * (rows * columns)).from_address(start)
        weakref.finalize(memory, _library.give_back, start, ctypes.sizeof(memory)).atexit = False  # it may have 2 GB
        y = torch.frombuffer(memory, dtype=torch.float32).view(rows, columns)
        if 1 not in self.rows or rows < max(self.rows):  # it is validated: with other batches in the end
            y[0, 0].item()
        return y
