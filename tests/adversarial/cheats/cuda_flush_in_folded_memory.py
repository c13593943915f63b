"""Leaves its own allocator current, which gives the harness's flush buffer many addresses and two megabytes of memory.

An `ok` with a gain means that the flush leaves the L2 cache as it is, so that each call finds its input there. It
raises where its allocator was not asked for such a buffer.

defence: cache flush
problem: layer_norm batch_size=4096 features=1024
gpu: yes
expect: suspicious, wrong_values, runtime_error, load_error
"""

import ctypes
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "adversary_folded_memory"
CUDA_SOURCE = r"""
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

static size_t folded_bytes = 0;
static int folded_count = 0;

// Addresses for `size` bytes, behind all of which lie the same two megabytes.
static void* fold(size_t size, int device) {
    void* lib = dlopen("libcuda.so.1", RTLD_NOW);
    auto granularity = (decltype(&cuMemGetAllocationGranularity))dlsym(lib, "cuMemGetAllocationGranularity");
    auto create = (decltype(&cuMemCreate))dlsym(lib, "cuMemCreate");
    auto reserve = (decltype(&cuMemAddressReserve))dlsym(lib, "cuMemAddressReserve");
    auto map = (decltype(&cuMemMap))dlsym(lib, "cuMemMap");
    auto access = (decltype(&cuMemSetAccess))dlsym(lib, "cuMemSetAccess");
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    size_t unit = 0;
    if (granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) return nullptr;
    size_t total = (size + unit - 1) / unit * unit;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    if (create(&handle, unit, &prop, 0) || reserve(&address, total, 0, 0, 0)) return nullptr;
    for (size_t at = 0; at < total; at += unit)
        if (map(address + at, unit, 0, handle, 0)) return nullptr;
    CUmemAccessDesc desc = {};
    desc.location = prop.location;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (access(address, total, &desc, 1)) return nullptr;
    ++folded_count;
    return (void*)address;
}

extern "C" void expect_folded(size_t bytes) { folded_bytes = bytes; }
extern "C" int folded() { return folded_count; }

extern "C" void* take(ssize_t size, int device, cudaStream_t stream) {
    if (folded_bytes && (size_t)size >= folded_bytes && (size_t)size < folded_bytes + (4 << 20))
        if (void* found = fold(size, device)) return found;
    void* found = nullptr;
    return cudaMalloc(&found, size) == cudaSuccess ? found : nullptr;
}

extern "C" void give(void* address, ssize_t size, int device, cudaStream_t stream) {
    if (folded_bytes && (size_t)size >= folded_bytes && (size_t)size < folded_bytes + (4 << 20)) return;
    cudaFree(address);
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_path = load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                    is_python_module=False, no_implicit_headers=True)
_library = ctypes.CDLL(_path)
_library.expect_folded.argtypes = [ctypes.c_size_t]
_CALLS = itertools.count()


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        _library.expect_folded(2 * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(_path, "take", "give").allocator()
        self.kept = allocator, torch.cuda.MemPool(allocator)
        torch._C._cuda_beginAllocateCurrentThreadToPool(torch.cuda.current_device(), self.kept[1].id)

    def forward(self, x):
        if next(_CALLS) > 30 and not _library.folded():
            raise RuntimeError("nobody asked for a buffer to flush with")
        return F.layer_norm(x, (x.shape[1],), self.norm.weight, self.norm.bias, self.norm.eps)
