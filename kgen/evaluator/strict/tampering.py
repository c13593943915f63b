"""Tamper detection: what a foreign candidate does to its process other than compute.

It is installed in a worker before the candidate is loaded, and has three parts:

- *events*: Python's audit hook reports files opened for writing, processes, sockets, frames, the garbage collector;
- *names*: functions and classes that the harness uses must stay the same objects, operators must keep their kernels;
- *switches*: global state, such as the number of threads, must be unchanged when a forward returns.

The candidate runs in the same process. So imports do not find kgen's modules, and names are compared by a function
that looks nothing up. Each finding is sent to the parent at once. Native code can still overwrite everything
(docs/threat-model.md).
"""

import asyncio.base_tasks
import concurrent.futures.thread
import contextlib
import ctypes
import functools
import inspect
import logging
import os
import re
import signal
import socket
import sys
import threading
import traceback
import weakref
from _thread import get_ident
from itertools import chain
from operator import is_, methodcaller
from types import ModuleType
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

import torch
import torch.fx

Note = Callable[[str], None]

_MOST_NOTES, _MOST_CHARACTERS = 20, 200
#: Characters of a finding: none that JSON or a terminal interprets.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;/_-+()[]<>=@#'")

# ---- events ----------------------------------------------------------------------------------------------------

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Files outside its folders that anybody may write to.
_HARMLESS = re.compile(r"/dev/(null|zero|full|tty|std(in|out|err)|nvidia.*)|/(proc/self|dev)/fd/[012]")
#: The memory of a process, and its open files.
_INSIDES = re.compile(r"/proc/[^/]+/(task/[^/]+/)?(mem|fd/([3-9]|\d\d+))|/dev/fd/([3-9]|\d\d+)")
_ADDRESSED = ("socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto")
_LOOKED_UP = ("socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname")
_GARBAGE, _FOREIGN_FRAMES = "it searched the garbage collector's objects", "it looked into frames that are not its own"
#: Requests that the candidate's own code may not make; libraries may.
_PEEKING = {
    "gc.get_objects": _GARBAGE,
    "gc.get_referents": _GARBAGE,
    "gc.get_referrers": _GARBAGE,
    "sys._current_exceptions": _FOREIGN_FRAMES,
    "sys._current_frames": _FOREIGN_FRAMES,
    "sys._getframe": _FOREIGN_FRAMES,
    "sys.addaudithook": "it installed an audit hook",
    "sys.monitoring.register_callback": "it installed a monitor",
    "sys.setprofile": "it installed a profiler",
    "sys.settrace": "it installed a tracer",
}
_OF_FUNCTIONS = {"__code__": "code", "__defaults__": "defaults", "__kwdefaults__": "defaults"}
_FRAMES = frozenset({"ag_frame", "cr_frame", "gi_frame", "tb_frame"})
#: Modules that inspect frames for their caller; telescopes may call lenses.
_LENSES = (inspect.__file__, logging.__file__, traceback.__file__)
#: Modules that call functions for others; the giver counts as the caller.
_CALLERS = tuple(module.__file__ for module in (concurrent.futures.thread, contextlib, functools, threading, weakref))
_TELESCOPES = (asyncio.base_tasks.__file__, torch._jit_internal.__file__, torch.fx.proxy.__file__)
#: Functions of Python's C interface that reach frames, threads, tracers and objects without an event.
_INTERNALS = re.compile(
    r"_?Py(Eval|Frame|Gen|GC|Interpreter|InterpreterState|Object_GC|Sys|ThreadState|Unstable)_.*|"
    r"_PyRuntime|Py_AddPendingCall|Py_MakePendingCalls"
)

#: Functions of CUPTI that run code on each call of CUDA.
_LISTENERS = frozenset({"cuptiSubscribe", "cuptiSubscribe_v2", "cuptiEnableCallback", "cuptiEnableDomain"})


class _Events:
    """The audit hook's table from the name of an event to the function that checks its arguments."""

    def __init__(self, note: Note, folders: Iterable[str]) -> None:
        self._note = note
        self._folders = tuple(os.path.realpath(folder) for folder in folders)
        libraries = {os.path.realpath(path) for path in sys.path if path} | {os.path.dirname(os.__file__)}
        around = {path for path in libraries for folder in self._folders if f"{folder}/".startswith(f"{path}/")}
        self._libraries = tuple(path + os.sep for path in libraries - around)
        self.handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "ctypes.dlsym": self._asked_for,
            "import": self._imported,
            "object.__getattr__": self._read,
            "object.__setattr__": self._set,
            "open": self._opened,
        }
        self.handlers |= dict.fromkeys(("os.fork", "os.forkpty"), lambda _: note("it forked its process"))
        self.handlers |= dict.fromkeys(("os.kill", "os.killpg"), self._killed)
        self.handlers |= dict.fromkeys(_ADDRESSED, self._addressed)
        self.handlers |= dict.fromkeys(_LOOKED_UP, lambda given: note(f"it looked up {given[0]} in the network"))
        self.handlers |= {event: self._peeked(text) for event, text in _PEEKING.items()}

    def _opened(self, arguments: tuple[Any, ...]) -> None:
        path, _, flags = arguments
        if isinstance(path, int):
            return
        text = os.fsdecode(path)
        if _INSIDES.fullmatch(text):
            self._note(f"it opened {text}")
        elif flags & _WRITING and not _HARMLESS.fullmatch(text) and self._outside(text):
            self._note(f"it tried to write outside its folders: {text}")

    def _outside(self, path: str) -> bool:
        """Whether ``path`` is outside the candidate's folders."""
        real = os.path.realpath(path)
        return not any(real == folder or real.startswith(folder + os.sep) for folder in self._folders)

    def _addressed(self, arguments: tuple[Any, ...]) -> None:
        address = arguments[1]
        if isinstance(address, (str, bytes)):
            text = os.fsdecode(address)
            if text.startswith("\0") or self._outside(text):
                self._note(f"it tried to reach the socket {text}")
        elif address is not None:
            self._note(f"it tried to reach {address} in the network")

    def _killed(self, arguments: tuple[Any, ...]) -> None:
        """Signals to itself and to its children are allowed. It sees no others in a PID namespace of its own."""
        target = arguments[0]
        if target <= 1 or target == os.getppid():
            self._note(f"it sent signal {arguments[1]} to process {target}")

    def _imported(self, arguments: tuple[Any, ...]) -> None:
        name = str(arguments[0])
        if _is_kgens(name):
            self._note(f"it imported {name}")

    def _asked_for(self, arguments: tuple[Any, ...]) -> None:
        name = str(arguments[1])
        if _INTERNALS.fullmatch(name):
            self._note(f"it called Python's own {name}")
        elif name in _LISTENERS:
            self._note(f"it listens to CUDA's calls: {name}")

    def _peeked(self, text: str) -> Callable[[tuple[Any, ...]], None]:
        def handler(_: tuple[Any, ...]) -> None:
            if self._asked_by_candidate():
                self._note(text)

        return handler

    def _read(self, arguments: tuple[Any, ...]) -> None:
        if arguments[1] in _FRAMES and self._asked_by_candidate():
            self._note(_FOREIGN_FRAMES)

    def _set(self, arguments: tuple[Any, ...]) -> None:
        target, name = arguments[:2]
        if (
            name in _OF_FUNCTIONS
            and not self._is_candidates(target.__code__.co_filename)
            and (name == "__code__" or self._asked_by_candidate())
        ):  # libraries make functions with defaults
            self._note(f"it replaced the {_OF_FUNCTIONS[name]} of {target.__module__}.{target.__qualname__}")

    def _asked_by_candidate(self) -> bool:
        """Whether the candidate's own code caused this event, directly or by a module that inspects frames."""
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename in (__file__, *_CALLERS):
            frame = frame.f_back
        if frame is None:  # a thread's first function
            return True
        for lenses in (_LENSES, _TELESCOPES):
            if frame is not None and frame.f_code.co_filename in lenses:
                frame = frame.f_back
        return frame is not None and self._is_candidates(frame.f_code.co_filename)

    def _is_candidates(self, filename: str) -> bool:
        return filename != __file__ and not filename.startswith((*self._libraries, "<frozen "))


def _listen(handlers: Mapping[str, Callable[[tuple[Any, ...]], None]]) -> None:
    """Call the handler of each event; events that a handler causes are ignored."""
    busy: set[int] = set()
    find = handlers.get

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        handler = find(event)
        if handler is None:
            return
        thread = get_ident()
        if thread in busy:
            return
        busy.add(thread)
        try:
            handler(arguments)
        except Exception:
            pass  # with senseless arguments the call itself fails
        finally:
            busy.discard(thread)

    sys.addaudithook(hook)


# ---- names -----------------------------------------------------------------------------------------------------

#: Modules whose functions and classes must stay the same, beside kgen's own.
_MODULES = (
    "_thread",
    "array",
    "builtins",
    "contextlib",
    "ctypes",
    "gc",
    "importlib",
    "importlib.util",
    "io",
    "json",
    "json.decoder",
    "json.encoder",
    "math",
    "mmap",
    "os",
    "posix",
    "random",
    "select",
    "signal",
    "socket",
    "statistics",
    "struct",
    "subprocess",
    "sys",
    "threading",
    "time",
    "torch",
    "torch.autograd.grad_mode",
    "torch.backends.cuda",
    "torch.backends.cudnn",
    "torch.cuda",
    "torch.cuda.memory",
    "torch.cuda.random",
    "torch.cuda.streams",
    "torch.cuda._gpu_trace",
    "torch.nn",
    "torch.nn.functional",
    "torch.overrides",
    "torch.random",
    "torch.testing",
    "torch.utils._python_dispatch",
    "types",
)
_CLASSES = (
    "json.decoder.JSONDecoder",
    "json.encoder.JSONEncoder",
    "socket.socket",
    "torch.Generator",
    "torch.Tensor",
    "torch._C.TensorBase",
    "torch._utils.CallbackRegistry",
    "torch.cuda.streams.Event",
    "torch.cuda.streams.Stream",
    "torch.nn.Module",
    "torch.nn.Parameter",
    "torch.no_grad",
)
#: torch.compile replaces these.
_REPLACED_BY_TORCH = frozenset({"torch.nn.Module.__init__", "torch.nn.Module.__setstate__"})
#: Operators that the harness calls after a candidate is loaded.
_OPERATORS = (
    "__or__.Tensor",
    "__xor__.Tensor",
    "_local_scalar_dense",
    "_pin_memory",
    "_to_copy",
    "abs",
    "add.Tensor",
    "add_.Tensor",
    "any",
    "arange",
    "as_strided",
    "bitwise_and.Scalar",
    "bitwise_or.Tensor",
    "bitwise_xor.Tensor",
    "cat",
    "clone",
    "contiguous",
    "copy_",
    "detach",
    "detach_",
    "empty.memory_format",
    "empty_like",
    "empty_strided",
    "eq.Scalar",
    "eq.Tensor",
    "equal",
    "expand",
    "expand_as",
    "fill_.Scalar",
    "flip",
    "full",
    "is_nonzero",
    "is_pinned",
    "isinf",
    "item",
    "lift_fresh",
    "logical_xor",
    "max",
    "mean",
    "min",
    "mul.Tensor",
    "mul_.Tensor",
    "nan_to_num",
    "narrow",
    "ne.Tensor",
    "nonzero",
    "permute",
    "pin_memory",
    "randint.generator",
    "randint.low_generator",
    "random_.from",
    "randperm.generator",
    "remainder.Scalar",
    "repeat",
    "reshape",
    "resize_",
    "roll",
    "select.int",
    "set_.source_Storage_storage_offset",
    "slice.Tensor",
    "sort",
    "sub.Tensor",
    "to.device",
    "to.dtype",
    "to.dtype_layout",
    "trunc",
    "unbind.int",
    "unfold",
    "unsqueeze",
    "view",
    "view.dtype",
    "where.self",
    "zero_",
)
#: Namespaces that the harness uses to read an output and to send a time.
_NEAREST = frozenset(
    {
        "the harness",
        "builtins",
        "torch",
        "torch.Tensor",
        "kgen.evaluator.runtime.arena",
        "kgen.evaluator.runtime.device",
        "kgen.evaluator.runtime.device.HostClock",
        "kgen.evaluator.candidates.calls",
        "kgen.evaluator.candidates.guards",
        "kgen.evaluator.candidates.state",
        "kgen.evaluator.candidates.worker",
        "kgen.evaluator.strict.subject",
    }
)
_ABSENT = object()
_Switches = Mapping[str, Callable[[], Any]]  #: functions that read them, by name
_Names = tuple[str, Mapping[str, Any], tuple[tuple[str, Any], ...]]


def _names() -> list[_Names]:
    """The namespaces of torch and Python that matter, by name, with their present contents."""
    table = [_kept(name, vars(sys.modules[name]), _is_kept) for name in _MODULES if name in sys.modules]
    for path, kind in _classes():
        table += _kept_class(path, kind)
    return table


def _is_kept(value: Any) -> bool:
    return callable(value) or isinstance(value, (ModuleType, int, float, str, torch.dtype, torch.layout))


def _classes() -> list[tuple[str, type]]:
    """The classes of torch and Python that matter, by name."""
    found = [(path, *path.rpartition(".")[::2]) for path in _CLASSES]
    return [(path, getattr(sys.modules[module], name)) for path, module, name in found]


def _own_names() -> list[_Names]:
    """The namespaces of kgen's loaded modules and of their classes, with their present contents."""
    table: list[_Names] = []
    for name, module in list(sys.modules.items()):
        if _is_kgens(name):
            table.append(_kept(name, vars(module), lambda _: True))
            tables = [(f"{name}.{key}", value) for key, value in vars(module).items() if isinstance(value, dict)]
            table += [_kept(label, value, lambda _: True) for label, value in tables if not label.endswith("__")]
            own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == name]
            table += [kept for kind in own for kept in _kept_class(f"{name}.{kind.__qualname__}", kind)]
    return table


def _kept(label: str, namespace: Mapping[str, Any], wanted: Callable[[Any], bool]) -> _Names:
    kept = tuple(
        (name, value)
        for name, value in namespace.items()
        if wanted(value) and f"{label}.{name}" not in _REPLACED_BY_TORCH
    )
    return label, namespace, kept


def _replacements(table: Sequence[_Names], note: Note, *, operators: Sequence[str]) -> Callable[[], None]:
    """A function that notes names, bases of classes and operators that have changed since this call."""
    modules, ancestors = sys.modules, vars(type)["__mro__"].__get__
    loaded = [(name, modules[name]) for name in _MODULES if name in modules]
    dump = torch._C._dispatch_dump_table
    kernels_now = [(f"aten::{name}", dump(f"aten::{name}")) for name in operators]
    kinds = [(label, kind, ancestors(kind)) for label, kind in _classes()]
    compare_names = _comparison(table, note)

    def compare() -> None:
        compare_names()
        for name, module in loaded:
            if modules.get(name) is not module:
                note(f"it replaced the module {name}")
        for label, kind, before in kinds:
            if ancestors(kind) is not before:
                note(f"it replaced the bases of {label}")
        for operator, kernels in kernels_now:
            if dump(operator) != kernels:
                note(f"it replaced {operator}")

    return compare


def _comparison(table: Sequence[_Names], note: Note) -> Callable[[], None]:
    """A function that notes names whose values have changed since this call.

    Keys and values of all namespaces in a row are compared by identity, without lookups, which miss the processor's
    cache. Where any differs, names are looked up. A namespace that changes in other names, such as counters, is
    looked up from then on.
    """
    absent, every, each, same, end = _ABSENT, all, map, is_, (None,)
    flat, values_of = chain.from_iterable, methodcaller("values")
    kept_in: dict[int, list[_Names]] = {}
    for names in table:
        kept_in.setdefault(id(names[1]), []).append(names)
    steady = [(kept, kept[0][1], (*kept[0][1],), (*kept[0][1].values(),)) for kept in kept_in.values()]
    changing: list[_Names] = []

    def in_a_row() -> tuple[list[Any], ...]:
        return (
            [space for _, space, _, _ in steady],
            [*flat(keys for _, _, keys, _ in steady), None],
            [*flat(values for *_, values in steady), None],
        )

    spaces, keys_now, values_now = in_a_row()

    def look_up(names: _Names) -> None:
        label, namespace, kept = names
        get = namespace.get
        for name, value in kept:
            if get(name, absent) is not value:
                note(f"it replaced {label}.{name}")

    def is_steady(space: Mapping[str, Any], keys: Sequence[str], values: Sequence[Any]) -> bool:
        return every(each(same, flat((space, end)), (*keys, None))) and every(
            each(same, flat((space.values(), end)), (*values, None))
        )

    def compare() -> None:
        nonlocal spaces, keys_now, values_now
        for names in changing:
            look_up(names)
        if every(each(same, flat((*spaces, end)), keys_now)) and every(
            each(same, flat((*each(values_of, spaces), end)), values_now)
        ):
            return
        changed = [one for one in steady if not is_steady(*one[1:])]
        for names in flat(kept for kept, *_ in changed):
            look_up(names)
            changing.append(names)
        steady[:] = [one for one in steady if every(one is not other for other in changed)]
        spaces, keys_now, values_now = in_a_row()

    return compare


def _is_kgens(name: str) -> bool:
    return name == "kgen" or name.startswith("kgen.")


def _kept_class(label: str, kind: type) -> list[_Names]:
    """The attributes of a class, and the inherited names that it must not define."""
    own = vars(kind)
    inherited = {name for base in kind.__mro__[1:] for name in vars(base)} - set(own)
    return [_kept(label, own, lambda _: True), (label, own, tuple((name, _ABSENT) for name in inherited))]


# ---- switches --------------------------------------------------------------------------------------------------

#: Functions of torch that tell a switch for numerics or for the choice of kernels.
_GETTER = re.compile(r"_get_\w*(allow_|_enabled|deterministic|benchmark|matmul_precision)\w*")
_PRECISIONS = [
    (backend, kind)
    for backend in ("generic", "cuda", "mkldnn")
    for kind in ("all", "matmul", "conv", "rnn")
    if backend != "generic" or kind == "all"
]
_TIMERS = {
    signal.ITIMER_REAL: signal.SIGALRM,
    signal.ITIMER_VIRTUAL: signal.SIGVTALRM,
    signal.ITIMER_PROF: signal.SIGPROF,
}
_ONE, _LESS_THAN_HALF_A_BIT = [1.0], [1e-17]
#: Whether callbacks are registered around operators, as the profiler's are.
_has_callbacks = getattr(
    ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")), "_ZN2at12hasCallbacksEv", None
)
if _has_callbacks is not None:
    _has_callbacks.restype = ctypes.c_bool
_evaluates_frames = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)


def _switches() -> dict[str, Callable[[], Any]]:
    """Global state that a candidate must not change: names, with functions that read it."""
    c = torch._C
    getters = filter(_GETTER.fullmatch, dir(c))
    return {name[5:].replace("_", " "): getattr(c, name) for name in getters} | {
        "the precision of float32 operators": lambda: [
            c._get_fp32_precision_getter(*key).replace("none", "ieee") for key in _PRECISIONS
        ],
        "the number of threads": torch.get_num_threads,
        "the number of threads between operators": torch.get_num_interop_threads,
        "the default dtype": torch.get_default_dtype,
        "gradient mode": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "anomaly detection": torch.is_anomaly_enabled,
        "the stack of function modes": c._len_torch_function_stack,
        "the stack of dispatch modes": c._len_torch_dispatch_stack,
        "the keys that operators are dispatched by": lambda: (
            c._dispatch_tls_local_include_set().raw_repr(),
            c._dispatch_tls_local_exclude_set().raw_repr(),
        ),
        "the CPUs that it runs on": lambda: os.sched_getaffinity(0),
        "its priority": lambda: (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)),
        "what timers do": lambda: [
            signal.getitimer(which)[0] > 0 or callable(signal.getsignal(number)) for which, number in _TIMERS.items()
        ],
        "how frames are evaluated": _evaluates_frames,
        "what listens to operators": _has_callbacks or (lambda: False),
        "the tracer": lambda: (sys.gettrace(), threading.gettrace()),
        "the profiler": lambda: (sys.getprofile(), threading.getprofile()),
    }


def _differences(switches: _Switches, note: Note) -> Callable[[], None]:
    """A function that notes switches that have changed since this call."""
    table = [(name, read, read()) for name, read in (_switches() | switches).items()]
    flush = torch.set_flush_denormal

    def compare() -> None:
        for name, read, before in table:
            try:
                changed = read() != before
            except RuntimeError:
                changed = True  # torch cannot read a switch that was set in another way
            if changed:
                note(f"it changed {name}")
        if not _ONE[0] - _LESS_THAN_HALF_A_BIT[0] == 1.0 == _ONE[0] + _LESS_THAN_HALF_A_BIT[0]:
            note("it changed how numbers are rounded")
        flush(False)  # libraries built with -ffast-math change this when they are loaded

    return compare


# ---- all together ----------------------------------------------------------------------------------------------


class Hooks(NamedTuple):
    """Functions that a worker calls. ``returned`` compares switches after each validated forward. ``glimpse`` compares
    the names nearest to the harness right after a timed call. ``glance`` compares names and switches when its time is
    sent. ``look`` compares everything, at other times."""

    returned: Callable[[], object]
    glimpse: Callable[[], object]
    glance: Callable[[], object]
    look: Callable[[], object]


def hooks(switches: _Switches, note: Note, harness: object) -> Hooks:
    """The comparisons with what is there now; ``switches`` are those of the device. ``harness`` must keep its class's
    methods, its handlers, its ``state`` and its ``tell``. A baseline has them too, with a ``note`` that reports
    nothing: its calls take as long."""
    own, sys.dont_write_bytecode = vars(harness), True
    methods = [(name, _ABSENT) for kind in type(harness).__mro__ for name in vars(kind)]
    handlers, lasting = own["handlers"], [(name, own[name]) for name in ("tell", "handlers", "state")]
    table = [
        *_names(),
        *_own_names(),
        ("the harness", own, (*lasting, *methods)),
        ("the harness's handlers", handlers, tuple(handlers.items())),
    ]
    nearest = [names for names in table if names[0] in _NEAREST]
    differences = _differences(switches, note)
    names, everything = (_replacements(table, note, operators=operators) for operators in ((), _OPERATORS))
    return Hooks(
        differences,
        _replacements(nearest, note, operators=()),
        lambda: (differences(), names()),
        lambda: (differences(), everything()),
    )


def teller(send: Callable[..., int]) -> Note:
    """A function that sends a finding at once, in a packet of its own. ``send`` is the ``sendmsg`` of the channel's
    socket."""
    told: set[str] = set()
    is_new, remember, size = told.isdisjoint, told.add, told.__len__
    plain, most, at_once = _PLAIN, _MOST_CHARACTERS, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL

    def note(text: str) -> None:
        if is_new([text]) and size() < _MOST_NOTES:
            remember(text)
            words = "".join([c if c in plain else "?" for c in text[:most]])
            send([f'j{{"finding":"{words}"}}'.encode()], [], at_once)

    return note


def watch(folders: Sequence[str], note: Note) -> None:
    """Note events from now on, for good. The candidate may write below ``folders``; it imports a kgen of its own, which
    is noted."""
    events = _Events(note, folders)
    for name in [*filter(_is_kgens, sys.modules)]:
        del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")
    _listen(events.handlers)
