"""Builds: candidates' kernels compiled ahead of their evaluation and kept by content.

A candidate's file holds its kernel source and flags as literals. They are read without running the file. The file's own
``load_inline`` call is made ahead: the file then finds its library up to date. Files that build in other ways are built
when a worker loads them.
"""

import ast
import fcntl
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import struct
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Sequence

from kgen.devices.kinds import KINDS
from kgen.devices.machine import cxx
from kgen.errors import DiskError, ToolchainError
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.channel import Channel, ChannelTimeout
from kgen.evaluator.runtime.file_locks import held
from kgen.evaluator.runtime.locks import DeviceLock
from kgen.evaluator.runtime.niceness import be_nicer
from kgen.evaluator.runtime.process import ChildDied, Server
from kgen.problems import syntax
from kgen.protocol import TRIES, BuildReport, KernelResources, Limits

#: Sections of a library with its code; names and paths are in others.
_CODE_SECTIONS = (".text", ".rodata", ".nv_fatbin")
_TEXTS, _FLAGS = ("NAME", "CPP_SOURCE", "CUDA_SOURCE"), ("CFLAGS", "CUDA_FLAGS")  #: names of a candidate's literals
_PARTS, _MOST_PARTS = "PARTS", 32  #: the literal with the number of parts of a source; their limit
#: Environment variables that change what compilers do.
_ENVIRONMENT = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "CUDA_HOME",
    "CUDA_PATH",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "TORCH_CUDA_ARCH_LIST",
)
_FILE_BYTES, _PROCESSES = 4 << 30, 512  # limits of a build
_LEAST_FREE = 64 << 20  # bytes of disk; below it, a failed build is no fault of its source
_NICENESS = 5  # of compilers beside timings on a GPU
_BEHIND, _NICEST = 3, 19  # niceness for each build that comes first, up to Linux's limit; 3 more halve the time
_REASON_CHARACTERS = 300
_PAUSE_SECONDS = 0.5  # times the number of the try; before a killed build begins again
#: A log says so where a signal from outside ended a compiler, or a program that the compiler or ninja ran.
_KILLED = re.compile(
    r"\b(Killed|Terminated) signal terminated program\b"  # GCC
    r"|\bterminated with signal (9|15)\b"  # GCC's linker
    r"|\bunable to execute command: (Killed|Terminated)\b"  # Clang
    r"|\bdied due to signal (9|15)\b"  # nvcc
    r"|^(.*\d\s+)?(Killed|Terminated)$"  # a shell
    r"|^FAILED: \[code=(137|143)\]|\bbuild stopped: interrupted by user\b"  # ninja
    r"|\bdied with <Signals\.SIG(KILL|TERM|INT|HUP|QUIT)\b",
    re.MULTILINE,
)  # Python, of ninja itself
_FAULT = re.compile(r"\b(fatal )?error\b|\bmemory (allocating|exhausted)|bad_alloc|Permission denied|not found$")
#: One kernel's lines of ``ptxas -v``: its name, bytes of spill stores and loads, registers, and what else it uses.
_KERNEL = re.compile(
    r"Compiling entry function '([^']+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?"
    r"Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Extension:
    """The literals of one candidate's ``load_inline`` call.

    ``parts`` is the number of files in which the builder compiles the source, side by side. Each file has another value
    of the macro ``PART``.
    """

    name: str
    cpp_source: str
    cuda_source: str
    cflags: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    parts: int = 1

    @property
    def content(self) -> str:
        """SHA-256 of everything that the compilers get, in however many parts."""
        given = {name: value for name, value in asdict(self).items() if name != "parts"}
        return hashlib.sha256(json.dumps(given).encode()).hexdigest()


def read_extension(source: str) -> Extension | None:
    """The extension in ``source``'s module-level literals; ``None`` without one."""
    found: dict[str, Any] = {}
    try:
        for node in syntax.parse(source).body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in (*_TEXTS, *_FLAGS, _PARTS):
                    if name in found:
                        return None
                    found[name] = ast.literal_eval(value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    name, *sources = (found.get(literal, "") for literal in _TEXTS)
    parts = found.get(_PARTS, 1)
    if type(parts) is not int or not 1 <= parts <= _MOST_PARTS or all(sources):
        parts = 1
    flags = [found.get(literal, []) for literal in _FLAGS]
    lists = all(isinstance(group, (list, tuple)) for group in flags)
    texts = lists and all(isinstance(text, str) for text in (name, *sources, *chain(*flags)))
    if texts and any(sources) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{,199}", name):
        return Extension(name, *sources, *map(tuple, flags), parts)
    return None


def copy_library(extension: Extension | None, build: BuildReport, folder: Path) -> dict[str, str]:
    """Copy a built library into ``folder``. Returns its path by the extension's content; empty without one."""
    if extension is None or build.binary is None:
        return {}
    name = f"{extension.name}.so"
    with suppress(FileNotFoundError):  # the folder of builds may have been emptied meanwhile
        return {extension.content: str(shutil.copyfile(Path(build.directory, extension.name, name), folder / name))}
    return {}


def compiler_version(command: str) -> str:
    """The first line that ``command --version`` prints, or for nvcc its release. Raises :class:`ToolchainError`."""
    try:
        asked = [*shlex.split(command), "--version"]
        text = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        other = "" if command == "nvcc" else ", or name another with CXX"
        raise ToolchainError(f"{command} cannot be run ({error}): install it, or put it on PATH{other}") from error
    release = re.search(r"release (\S+), (V\S+)", text)
    line = f"nvcc {release.group(2)}" if release else text.partition("\n")[0].strip()
    return re.sub(r"^c\+\+ (?=\()", "g++ ", line)  # GNU's compiler prints the name that it was called by


def _place(command: str) -> str:
    """The file that ``command`` runs."""
    return os.path.realpath(shutil.which(shlex.split(command)[0]) or command)


class Builder:
    """Builds candidates in processes of their own, each source once. Thread-safe. A build is found again by its inputs:
    sources, flags, versions of compilers and C library, and the architecture. The environment variables that compilers
    read and the text of included headers count too. (g++'s system headers belong to the versions.) A folder counts only
    with a record beside it, which is renamed into place after success. A lock file is held while a build is made or
    looked up, by the compiling process too. Without a ``server`` it only finds builds. ``lock`` is the device's lock;
    it is given on the CPU, where builds must not run during timings. Compilers do not see the folders ``hidden``.
    Threads that wait for another build when ``stop`` is set get :class:`EvaluatorError`."""

    def __init__(
        self,
        home: Path,
        device_type: str,
        arch: str,
        server: Server | None,
        *,
        limits: Limits = Limits(),
        lock: DeviceLock | None = None,
        stop: threading.Event | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        self._server = server
        self._hidden = hidden
        self._limits = limits
        self._lock = lock
        self._stop = stop or threading.Event()
        self._hash = cache(lambda path: hashlib.sha256(Path(path).read_bytes()).hexdigest())  # of a header, read once
        capability = re.fullmatch(r"sm_(\d+)(\d)\D?", arch)
        self._arch_list = f"{capability[1]}.{capability[2]}+PTX" if capability else ""
        self._logs = home / "logs" / "build"
        if shutil.which("ninja") is None:
            raise ToolchainError("ninja is not on PATH: torch builds with it: pip install ninja")
        self._cxx = cxx()
        compilers = [self._cxx, *KINDS[device_type].compilers]
        parts = [
            *compilers,
            *map(_place, compilers),
            *map(compiler_version, compilers),
            *platform.libc_ver(),
            *(f"{name}={os.environ.get(name, '')}" for name in _ENVIRONMENT),
            version("torch"),
            arch,
            sys.version.partition(" ")[0],
        ]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
        self.directory = (home / "builds" / f"{device_type}-{key}").resolve()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"{self.directory}: the folder for builds cannot be made: {error}") from error

    def build(self, source: str, behind: int = 0) -> BuildReport:
        """Build the extension of ``source``, or find it built. The report tells its faults. ``behind`` is the number of
        builds on their way that come first. Raises :class:`EvaluatorError` when the server fails and :class:`DiskError`
        when the folder cannot be written."""
        extension = read_extension(source)
        if extension is None:
            return BuildReport(True, False, 0.0, False, str(self.directory), None, "nothing to build ahead", "")
        started = time.monotonic()
        marker = self.directory / f"{extension.name}.json"
        try:
            with held(marker.with_suffix(".lock"), fcntl.LOCK_EX, self._stop) as lock:
                return self._kept(extension, marker) or self._built(extension, marker, started, lock, behind)
        except OSError as error:
            raise DiskError(f"{self.directory}: cannot be written: {error}") from error

    def library(self, extension: Extension) -> str | None:
        """The path of an extension's library, if it is built already."""
        report = self._kept(extension, self.directory / f"{extension.name}.json")
        return str(self.directory / extension.name / f"{extension.name}.so") if report is not None else None

    def _kept(self, extension: Extension, marker: Path) -> BuildReport | None:
        """The report of an earlier build, if it succeeded and its library is unchanged."""
        try:
            record = json.loads(marker.read_text())
            if (record["content"], record["headers_content"]) != (extension.content, self._content(record["headers"])):
                return None
            kernels = tuple(KernelResources(**kernel) for kernel in record["report"]["kernels"])
            report = BuildReport(**record["report"] | {"kernels": kernels, "cached": True})
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return report if report.binary == self.binary(extension.name) else None

    def binary(self, name: str) -> str | None:
        """The hash of the library ``name`` on disk."""
        try:
            return binary_hash(self.directory / name / f"{name}.so")
        except (OSError, ValueError, struct.error):
            return None

    def _content(self, headers: Sequence[str]) -> str:
        """SHA-256 of the headers' texts."""
        return hashlib.sha256("".join(map(self._hash, headers)).encode()).hexdigest()

    def _built(self, extension: Extension, marker: Path, started: float, lock: int, behind: int) -> BuildReport:
        """Compile ``extension``, again where a signal from outside ended the compiler."""
        for number in range(1, TRIES + 1):
            report = self._build(extension, marker, started, lock, behind)
            if not report.from_outside or number == TRIES or self._stop.wait(number * _PAUSE_SECONDS):
                break
        return report

    def _build(self, extension: Extension, marker: Path, started: float, lock: int, behind: int) -> BuildReport:
        """Compile ``extension``, after removing what a killed build left (torch's lock file)."""
        folder = self.directory / extension.name
        shutil.rmtree(folder, ignore_errors=True)
        marker.unlink(missing_ok=True)
        log = self._logs / f"{extension.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        with self._lock.working() if self._lock else nullcontext():
            ok, reason, headers, killed = self._compile(extension, log, lock, behind)
        seconds = time.monotonic() - started
        text = log.read_text(errors="replace")
        if not ok:
            free = shutil.disk_usage(self.directory).free
            shutil.rmtree(folder, ignore_errors=True)
            if free < _LEAST_FREE:
                raise DiskError(f"{self.directory}: a build failed with {free >> 20} MB of disk left; free some space")
            timed_out = reason.startswith("timed out")
            reason = reason if timed_out or killed else _reason(text) or reason
            killed = killed or (not timed_out and _KILLED.search(text) is not None)
            return BuildReport(
                False, timed_out, seconds, False, str(self.directory), None, reason, str(log), from_outside=killed
            )
        report = BuildReport(
            True,
            False,
            seconds,
            False,
            str(self.directory),
            self.binary(extension.name),
            "",
            str(log),
            parse_resources(text),
        )
        record = {
            "content": extension.content,
            "headers": headers,
            "headers_content": self._content(headers),
            "report": asdict(report),
        }
        aside = marker.with_suffix(".new")
        aside.write_text(json.dumps(record))
        aside.replace(marker)
        return report

    def _options(self, behind: int = 0) -> dict[str, Any]:
        return {
            "directory": str(self.directory),
            "sandboxed": True,
            "build_bytes": self._limits.build_bytes,
            "cxx": self._cxx,
            "arch_list": self._arch_list,
            "niceness": 0 if self._lock else min(_NICENESS + _BEHIND * behind, _NICEST),
        }

    def _hiding(self, extension: Extension) -> dict[str, Any]:
        """Options that hide the hidden folders from the compilers, except the extension's own folder."""
        folder = self.directory / extension.name
        folder.mkdir(exist_ok=True)  # a hidden folder shows only folders that exist
        return {"hidden": self._hidden, "shown": [str(folder)]}

    def _compile(self, extension: Extension, log: Path, lock: int, behind: int) -> tuple[bool, str, list[str], bool]:
        """Run the compilers in a process that holds ``lock`` too. Returns success, or the reason, the headers, and
        whether a signal from outside ended that process."""
        seconds = self._limits.build_seconds
        with self._server.spawn("build", self._options(behind) | self._hiding(extension), log) as child:
            try:
                answer, _ = child.ask(asdict(extension), [lock], deadline=time.monotonic() + seconds)
            except ChannelTimeout:
                return False, f"timed out after {seconds:g} s", [], False
            except ChildDied as error:
                return False, f"the build {error}", [], error.from_outside
        return bool(answer.get("ok")), str(answer.get("reason", "")), list(answer.get("headers", ())), False


def main(channel: Channel, options: dict[str, Any]) -> None:
    """The build process: make the candidate's ``load_inline`` call without loading the library."""
    from torch.utils import cpp_extension

    request, _ = channel.receive()  # with the lock's descriptor, which this process holds
    extension = Extension(**request)
    folder = Path(options["directory"], extension.name)
    folder.mkdir(exist_ok=True)
    os.environ |= {
        "TORCH_EXTENSIONS_DIR": options["directory"],
        "TMPDIR": str(folder),
        "HOME": str(folder),
        "MAX_JOBS": str(max(2, extension.parts)),
        "CXX": options["cxx"],
    }
    # torch would ask the GPU, which the sandbox does not show.
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", options["arch_list"])
    be_nicer(options["niceness"])
    # Flags may have a compiler run anything and read any file.
    sandbox.confine(
        sandbox.Confinement(
            writable=[folder],
            devices=[Path(os.devnull)],
            user=options["user"],
            mounts=options["mounts"],
            address_space=None,
            file_bytes=_FILE_BYTES,
            folder_bytes=None,
            processes=_PROCESSES,
        )
    )
    sandbox.limit_memory(options["build_bytes"])
    # Loading a library runs its constructors, which is a worker's task.
    cpp_extension._import_module_from_library = lambda *_: None
    flags = {
        "extra_cflags": extension.cflags,
        "extra_cuda_cflags": extension.cuda_flags,
        "is_python_module": False,
        "verbose": True,
    }
    try:
        if extension.parts > 1:
            cpp_extension.load(extension.name, _in_parts(extension, folder), build_directory=str(folder), **flags)
        else:
            cpp_extension.load_inline(
                extension.name, extension.cpp_source, extension.cuda_source, no_implicit_headers=True, **flags
            )
    except Exception as error:
        print(error, error.__cause__ or "", sep="\n", flush=True)  # the cause says how ninja ended
        channel.send({"ok": False, "reason": " ".join(str(error).split())[:_REASON_CHARACTERS]})
        return
    channel.send({"ok": True, "headers": _headers(folder)})


def _in_parts(extension: Extension, folder: Path) -> list[str]:
    """The paths of files, each with one part of the source."""
    end, source = (".cu", extension.cuda_source) if extension.cuda_source else (".cpp", extension.cpp_source)
    whole = folder / f"whole{end}.inc"
    whole.write_text(source)
    paths = [folder / f"part_{number}{end}" for number in range(extension.parts)]
    for number, path in enumerate(paths):
        path.write_text(f'#define PART {number}\n#include "{whole.name}"\n')
    return list(map(str, paths))


def _headers(folder: Path) -> list[str]:
    """The files outside ``folder`` that ninja recorded as read."""
    listed = subprocess.run(["ninja", "-t", "deps"], cwd=folder, capture_output=True, text=True, check=True).stdout
    read = {str((folder / line.strip()).resolve()) for line in listed.splitlines() if line.startswith(" ")}
    return sorted(path for path in read if not Path(path).is_relative_to(folder.resolve()))


def _reason(log: str) -> str:
    """The first error that a compiler named, in one line."""
    for line in log.splitlines():
        if _FAULT.search(line) and not line.startswith(("ninja", "Error building")):
            return re.sub(r"^\S*/", "", line.strip())[:_REASON_CHARACTERS]
    return ""


def parse_resources(log: str) -> tuple[KernelResources, ...]:
    """The figures of ``ptxas -v`` for each kernel in a build's log; spills are bytes stored plus loaded."""
    if not (found := _KERNEL.findall(log)):
        return ()
    names = [name for name, *_ in found]
    with suppress(OSError, subprocess.SubprocessError):  # without c++filt, names stay as they are, with their arguments
        text = subprocess.run(
            ["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True
        ).stdout
        names = text.replace("(anonymous namespace)::", "").splitlines()
    return tuple(
        KernelResources(name, int(registers), int(shared or 0), int(stores) + int(loads))
        for name, (_, stores, loads, registers, shared) in zip(names, found)
    )


def binary_hash(path: Path) -> str:
    """SHA-256 of the machine code in the 64-bit ELF library at ``path``. Raises ``ValueError`` for other files."""
    # nvcc puts a hash of the file's path and text into names.
    data = re.sub(rb"_GLOBAL__N__[0-9a-f]{8}", b"_GLOBAL__N__00000000", path.read_bytes())
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path}: no 64-bit ELF file")
    table, entry_size, count, names_index = struct.unpack_from("<Q", data, 0x28) + struct.unpack_from("<3H", data, 0x3A)
    sections = [struct.unpack_from("<2I4Q", data, table + index * entry_size) for index in range(count)]
    names = sections[names_index][4]
    digest = hashlib.sha256()
    for name_at, kind, _, _, offset, size in sections:
        name = data[names + name_at : data.index(b"\0", names + name_at)].decode()
        if name in _CODE_SECTIONS and kind != 8:  # 8: occupies no space in the file
            digest.update(name.encode() + b"\0" + data[offset : offset + size])
    return digest.hexdigest()
