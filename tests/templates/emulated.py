"""Candidates for a GPU, run on the CPU: their kernels' own text on the device of ``emulation/``.

A candidate's file is run as it is, but for three things: its ``load_inline`` is a C++ compiler's call, its tensors are
on the CPU, and ``torch.cuda`` is a stub. Memory that kernels get begins as NaN and ends at a page that no one may touch.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import re
import shutil
import subprocess
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from kgen.candidate import Candidate

EMULATION = Path(__file__).parent / "emulation"
_FLAGS = ("-std=c++17", "-march=native", "-shared", "-fPIC", "-w", f"-I{EMULATION}")
#: Vector accesses that are not aligned, and indices beyond an array, end in a signal. Locals do not begin as zeros.
_CHECKS = ("-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error", "-ftrivial-auto-var-init=pattern")
_PAGE, _ALIGNMENT = mmap.PAGESIZE, 16  # bytes; vector loads need 16
_ASM = re.compile(r"\basm(?: volatile)?\((.*?)\);", re.DOTALL)
_OPERAND = re.compile(r'"[=+]?(\w)"\s*\(')


class EmulationError(Exception):
    """A kernel did something that it must not do on a GPU; the text says what and where."""


# ---- from CUDA to C++ ----------------------------------------------------------------------------------------------


def host_text(text: str) -> str:
    """The text of kernels in C++, for the headers of ``emulation/``."""
    text = _ASM.sub(lambda m: _instructions(m[1]), text)
    text = re.sub(r"extern __shared__ (?:__align__\((\d+)\) )?unsigned char (\w+)\[\];",
                  lambda m: f"unsigned char* const {m[2]} = emulation::dynamic_shared({m[1] or _ALIGNMENT});", text)
    text = re.sub(r"__shared__ (?:alignas\((\d+)\) )?((?:long )*\w+(?:<\w+>)?) ([^;]+);", _shared, text)
    text = re.sub(r"(\w+(?:<\w+>)?)<<<\s*(.*?), (\d+), 0, [^;]*?>>>\(", r"emulation::launch(\1, {\2, \3}, ", text)
    text = re.sub(r'^extern "C" int \w+\([^)]*\) \{$', r"\g<0>\n    const emulation::Launcher launcher;", text, flags=re.MULTILINE)
    clusters = re.findall(r"__cluster_dims__\((\d+), 1, 1\) __launch_bounds__\([^)]*\) (\w+)\(", text)
    made = [f"static const bool {k}_is_declared = (emulation::declare_cluster(reinterpret_cast<const void*>({k}), {n}), true);"
            for n, k in clusters]
    return "\n".join([text, *made, ""])


def _shared(declaration: re.Match[str]) -> str:
    """Variables in shared memory, as references to the block's."""
    alignment, of, names = declaration.groups()
    found = []
    for part in re.split(r",\s*(?![^\[]*\])", names):
        name, dims = re.fullmatch(r"(\w+)((?:\[.*\])?)", part).groups()
        kind = f"{of}{dims}"
        found.append(f"auto& {name} = emulation::shared<{kind}>([] {{}}, {alignment or f'alignof({of})'});")
    return " ".join(found)


def _instructions(statement: str) -> str:
    """An inline assembly statement as calls of ``ptx``, one for each instruction."""
    template = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', statement[: _end_of_template(statement)]))
    operands = _operands(statement[_end_of_template(statement) :])
    body = template.strip()
    body = body[1:-1] if re.match(r"\{\s*\.reg", body) else body
    calls = []
    for line in filter(None, (part.strip() for part in body.split(";"))):
        declared = re.fullmatch(r"\.reg \.\w+ (\w+)", line)
        if declared:
            calls.append(f"uint32_t {declared[1]} = 0;")
            continue
        opcode, _, rest = line.partition(" ")
        rest = re.sub(r"%%cluster_ctarank", "ptx::cluster_ctarank()", re.sub(r"[\[\]{}]", " ", rest))
        given = [re.sub(r"%(\d+)", lambda m: operands[int(m[1])], part.strip()) for part in rest.split(",")]
        calls.append(f"ptx::{re.sub(r'[.:]+', '_', opcode)}({', '.join(g for g in given if g not in ('', '_'))});")
    return f"{{ {' '.join(calls)} }}"


def _end_of_template(statement: str) -> int:
    """Where the strings end with which the statement begins."""
    return re.match(r'\s*(?:"(?:[^"\\]|\\.)*"\s*)+', statement).end()


def _operands(text: str) -> list[str]:
    """The expressions of the operands, in their order."""
    found = []
    for match in _OPERAND.finditer(text):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        found.append(f"({text[match.end() : end - 1]})")
    return found


# ---- builds --------------------------------------------------------------------------------------------------------


def build(folder: Path, text: str, flags: Sequence[str]) -> Path:
    """The library of kernels' text, compiled with the flags of nvcc that matter here; known text is not built again."""
    architecture = int(re.search(r"compute_(\d+)", " ".join(flags))[1]) * 10
    cpp = "#include <cuda_runtime.h>\n" + host_text(text)
    more = (*_CHECKS, "-Og", "-g1", f"-D__CUDA_ARCH__={architecture}", f"-D__CUDA_ARCH_LIST__={architecture}")
    # The device's library has those of the compiler loaded: to look through them takes most of the linker's time.
    # A library with objects of its own, as stores.h has them, needs the compiler's start files.
    link = [] if "#include <stores.h>" in text else ["-nostdlib"]
    return _built(folder, cpp, [*more, *link, "-include", str(_headers(folder, more))])


def _headers(folder: Path, flags: Sequence[str]) -> Path:
    """A header of all that kernels include, compiled for these flags: parsing it would take a third of each build."""
    text = "".join(f"#include <{name}>\n" for name in ("cfloat", "cmath", "cstdint", *sorted(p.name for p in EMULATION.glob("cuda*.h"))))
    header = folder / f"{_digest(text, flags)}.h"
    compiled = header.with_suffix(".h.gch")
    if not compiled.exists():
        _written(header, text)
        made = header.with_suffix(f".{os.getpid()}")
        subprocess.run(["g++", *_FLAGS, *flags, "-x", "c++-header", str(header), "-o", str(made)], check=True, capture_output=True)
        os.replace(made, compiled)
    return header


def _digest(text: str, flags: Sequence[str]) -> str:
    about = "\0".join([text, *_FLAGS, *flags, *(p.read_text() for p in sorted(EMULATION.glob("*.h")))])
    return hashlib.sha256(about.encode()).hexdigest()[:20]


def _written(path: Path, text: str) -> None:
    """Write a file at once: another process may be reading it."""
    made = path.with_suffix(f".{os.getpid()}{path.suffix}")
    made.write_text(text)
    os.replace(made, path)


def _built(folder: Path, cpp: str, flags: Sequence[str]) -> Path:
    library = folder / f"{_digest(cpp, flags)}.so"
    if not library.exists():
        file, made = library.with_suffix(".cpp"), library.with_suffix(f".{os.getpid()}")
        _written(file, cpp)
        done = subprocess.run(["g++", *_FLAGS, *flags, str(file), "-o", str(made)], capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise EmulationError(f"{file} does not compile: " + " | ".join(errors[:4]))
        os.replace(made, library)
    return library


class Device:
    """The emulated device, with a folder for builds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        library = _built(folder, (EMULATION / "device.cpp").read_text(), ["-O3", "-fno-math-errno"])
        self._message = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL).emulation_message
        self._message.restype = ctypes.c_char_p

    def module(self, of: Candidate) -> types.ModuleType:
        """The candidate's file with its kernels built for this device."""
        def load_inline(cuda_sources: str, extra_cuda_cflags: Sequence[str], **_: Any) -> str:
            return str(build(self.folder, cuda_sources, extra_cuda_cflags))

        text = of.source.replace("not tensor.is_cuda", "not tensor.is_cpu").replace("torch.cuda.", "cuda.").replace("torch._C._cuda_", "cuda._cuda_")
        found = types.ModuleType("candidate")
        found.cuda = _Cuda()  # type: ignore[attr-defined]
        with mock.patch("torch.utils.cpp_extension.load_inline", load_inline):
            exec(compile(text, "<candidate>", "exec"), found.__dict__)
        return found

    def run(self, model: torch.nn.Module, inputs: Sequence[Any]) -> Any:
        """The output of a candidate's module. Raises :class:`EmulationError` where a kernel does what it must not do."""
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.data.data_ptr() % _PAGE != -tensor.nbytes % _PAGE // _ALIGNMENT * _ALIGNMENT:
                tensor.data = guarded(tensor.data)
        given = torch.utils._pytree.tree_map_only(torch.Tensor, guarded, list(inputs))
        self._message()
        error: RuntimeError | None = None
        with torch.no_grad(), _guarded_memory():
            try:
                output = model(*given)
            except RuntimeError as raised:
                error = raised
        message = self._message().decode()
        if message:
            raise EmulationError(_with_line(message))
        if error:
            raise error
        return output


def _with_line(message: str) -> str:
    """The message with the line of C++ that it names as a library's place."""
    place = re.search(r"by (\S+)\+(0x[0-9a-f]+)$", message)
    if not place or not shutil.which("addr2line"):
        return message
    line = subprocess.run(["addr2line", "-e", *place.groups()], capture_output=True, text=True).stdout.strip()
    file, _, number = line.split(" ")[0].rpartition(":")
    text = Path(file).read_text().splitlines()[int(number) - 1].strip() if number.isdigit() and Path(file).exists() else ""
    return f"{message.replace(place[0], line)} {text}"


# ---- memory --------------------------------------------------------------------------------------------------------


_libc = ctypes.CDLL(None, use_errno=True)


def room(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Memory that begins as NaN (integers: as -1) and ends, but for less than 16 bytes, at a page that no one may touch."""
    count = 1
    for size in shape:
        count *= size
    size = count * torch.empty((), dtype=dtype).element_size()
    if not size:
        return torch.empty(tuple(shape), dtype=dtype)
    pages = -(-size // _PAGE)
    memory = mmap.mmap(-1, (pages + 2) * _PAGE)
    memory.write(b"\xff" * ((pages + 2) * _PAGE))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, pages + 1):
        if _libc.mprotect(ctypes.c_void_p(address + page * _PAGE), ctypes.c_size_t(_PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = ((pages + 1) * _PAGE - size) // _ALIGNMENT * _ALIGNMENT
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=begin).view(tuple(shape))


def guarded(x: torch.Tensor) -> torch.Tensor:
    """A copy in memory of its own; strides of dense tensors stay."""
    if not x.numel():
        return x
    order = sorted(range(x.dim()), key=lambda i: -x.stride(i))
    dense = x.permute(order).contiguous()
    found = room(dense.shape, x.dtype).copy_(dense)
    return found.permute([order.index(i) for i in range(x.dim())])


@contextlib.contextmanager
def _guarded_memory() -> Iterator[None]:
    """``Tensor.new_empty`` gives memory with guards; products of half types with sums in float32 run on the CPU."""
    def new_empty(self: torch.Tensor, *size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        shape = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)) else size
        return room(shape, dtype or self.dtype)

    def product(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        return out.copy_(x.to(out_dtype) @ y.to(out_dtype))

    with mock.patch.object(torch.Tensor, "new_empty", new_empty), _products(torch, product):
        yield


@contextlib.contextmanager
def _products(module: Any, product: Any) -> Iterator[None]:
    """``torch.mm`` and ``torch.bmm`` run ``product`` where they are given a dtype for the sums."""
    def either(own: Any) -> Any:
        return lambda *args, **more: product(*args, **more) if "out_dtype" in more else own(*args, **more)

    with mock.patch.object(module, "mm", either(module.mm)), mock.patch.object(module, "bmm", either(module.bmm)):
        yield


class _Cuda:
    """``torch.cuda`` as candidates use it."""

    cuda_stream = 0

    def current_stream(self, device: Any = None) -> "_Cuda":
        return self

    def device(self, device: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def is_current_stream_capturing(self) -> bool:
        return False

    def _cuda_getDevice(self) -> int:
        return -1  # the device of tensors on the CPU

    def _cuda_getCurrentRawStream(self, device: int) -> int:
        return 0

    def record_event(self) -> None:
        return None
