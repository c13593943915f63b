"""A call as a CUDA graph that runs again without some of its kernels, by the driver through ``ctypes``."""

import ctypes
from collections import defaultdict
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any, Callable

import torch

from kgen.evaluator.runtime.driver import DriverError

_KERNEL = 0  # CU_GRAPH_NODE_TYPE_KERNEL


class _Launch(ctypes.Structure):  # CUDA_KERNEL_NODE_PARAMS
    _fields_ = [
        ("function", c_void_p),
        *((name, c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("arguments", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


def _driver(name: str, *arguments: Any) -> None:
    code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if code:
        raise DriverError(f"{name} gives error {code}")


class Graph:
    """A forward that was captured once, and runs again without some of its kernels."""

    def __init__(self, call: Callable[[], Any], wait: Callable[[], None]) -> None:
        self._wait = wait
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(self._graph):
            self.output = call()
        raw, count = c_void_p(self._graph.raw_cuda_graph()), c_size_t()
        _driver("cuGraphGetNodes", raw, None, byref(count))
        nodes = (c_void_p * count.value)()
        _driver("cuGraphGetNodes", raw, nodes, byref(count))
        self._executable = c_void_p()
        _driver("cuGraphInstantiateWithFlags", byref(self._executable), raw, c_ulonglong(0))
        pool = tuple(self._graph.pool())
        self._memory = [
            (found["address"], found["total_size"])
            for found in torch.cuda.memory_snapshot()
            if tuple(found["segment_pool_id"]) == pool
        ]
        self.kernels: dict[str, list[c_void_p]] = defaultdict(list)  # by name
        for node in map(c_void_p, nodes):
            kind = c_int()
            _driver("cuGraphNodeGetType", node, byref(kind))
            if kind.value == _KERNEL:
                self.kernels[_name(node)].append(node)

    def replay(self, without: str, fill: int) -> Any:
        """The output, of kernels that all ran but those of one name. Each byte of the graph's memory is ``fill``
        before."""
        for address, size in self._memory:
            _driver("cuMemsetD8_v2", c_ulonglong(address), ctypes.c_ubyte(fill), c_size_t(size))
        self._enable(without, False)
        try:
            stream = c_void_p(torch.cuda.current_stream().cuda_stream)
            _driver("cuGraphLaunch", self._executable, stream)
            self._wait()
        finally:
            self._enable(without, True)
        return self.output

    def _enable(self, name: str, enabled: bool) -> None:
        for node in self.kernels.get(name, ()):
            _driver("cuGraphNodeSetEnabled", self._executable, node, c_uint(enabled))


def _name(node: c_void_p) -> str:
    """The name of a node's kernel, as it was written."""
    launch, found = _Launch(), c_char_p()
    _driver("cuGraphKernelNodeGetParams_v2", node, byref(launch))
    if launch.function:
        _driver("cuFuncGetName", byref(found), c_void_p(launch.function))
    else:
        _driver("cuKernelGetName", byref(found), c_void_p(launch.kernel))
    return _demangled(found.value or b"")


def _demangled(name: bytes) -> str:
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return name.decode(errors="replace")
    demangle.restype, demangle.argtypes = c_void_p, [c_char_p, c_void_p, c_void_p, POINTER(c_int)]
    status = c_int()
    found = demangle(name, None, None, byref(status))
    return (
        (ctypes.cast(found, c_char_p).value or b"").decode(errors="replace")
        if found and not status.value
        else name.decode(errors="replace")
    )
