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
from types import ModuleType
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

import torch
import torch.fx

from kgen.evaluator.strict.names import ABSENT, NEAREST, OPERATORS, is_kgens, names_of_others, own_names, replacements

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
        if is_kgens(name):
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


_Switches = Mapping[str, Callable[[], Any]]  #: functions that read them, by name


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
    """The comparisons with the present state; ``switches`` are the device's switches. ``harness`` must keep its class's
    methods, its handlers, its ``state`` and its ``tell``. A baseline has them too, with a ``note`` that reports
    nothing: its calls take as long."""
    own, sys.dont_write_bytecode = vars(harness), True
    methods = [(name, ABSENT) for kind in type(harness).__mro__ for name in vars(kind)]
    handlers, lasting = own["handlers"], [(name, own[name]) for name in ("tell", "handlers", "state")]
    table = [
        *names_of_others(),
        *own_names(),
        ("the harness", own, (*lasting, *methods)),
        ("the harness's handlers", handlers, tuple(handlers.items())),
    ]
    nearest = [names for names in table if names[0] in NEAREST]
    differences = _differences(switches, note)
    names, everything = (replacements(table, note, operators=operators) for operators in ((), OPERATORS))
    return Hooks(
        differences,
        replacements(nearest, note, operators=()),
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
    for name in [*filter(is_kgens, sys.modules)]:
        del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")
    _listen(events.handlers)
