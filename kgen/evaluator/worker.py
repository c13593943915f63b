"""The worker: a process that holds one subject, a candidate or a baseline, and runs it on request.

It is given inputs and weights, never an expected value or the seed of an input. It answers with what it saw: the
structure and bytes of outputs, and raw times. The parent and the oracle decide what they mean.

What the harness uses of torch after the candidate is loaded is bound to names here first, so that a candidate that
patches torch's modules changes its own behaviour only.
"""

from __future__ import annotations

import ctypes
import gc
import glob
import importlib.util
import itertools
import os
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterable

import torch

from kgen.evaluator.correctness.distributions import (
    Mixture, change_weights, mixtures, moved_buffers, recombine, seed_of,
)
from kgen.evaluator.correctness.reference import construct, set_flags
from kgen.evaluator.runtime import driver, sandbox
from kgen.evaluator.runtime.arena import (
    Arena, describe, is_inexact, is_tensor, map_tensors, nodes, same_bits, span, tensors,
)
from kgen.evaluator.runtime.channel import Channel
from kgen.evaluator.runtime.device_arena import DeviceArena, open_arena
from kgen.evaluator.strict import profile, tampering

_FILE_BYTES = 256 << 20
_MESSAGE_CHARACTERS = 400
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc")  # in a RuntimeError's message
_POISON_BLOCKS = 3
_HELD_BYTES = 1 << 28  #: of outputs of earlier calls that are held
_WATCHED = ("load", "audit")  #: requests before whose answer the watch looks at everything
_PAGE = 4096  #: bytes
_SAMPLES, _HELD_SAMPLES = 4096, 1 << 18  #: elements of a tensor that are looked at where it has more, at least
_FENCE = 512  #: elements on each side of an input; keeps it aligned to 512 bytes
_PERTURB = -6  # mallopt: fill what is allocated and freed
_PERTURB_BYTE = 0x80
_GHZ = 2.0  # upper bound of the clock that torch.cuda._sleep counts, for turning nanoseconds into cycles

_now, _random = time.perf_counter_ns, os.urandom
_full = torch.full
_no_grad = torch.no_grad
_seed = torch.Generator.manual_seed
_gc_disable = gc.disable
_copy, _fill, _multiply = torch.Tensor.copy_, torch.Tensor.fill_, torch.Tensor.mul_
_sleep = getattr(torch._C, "_cuda_sleep", None)  # a build for the CPU has none
_attributes = vars(torch.nn.Module)["__dict__"].__get__  # a class may have a property of that name
_get, _items = dict.get, dict.items  # as it is: a subclass may show others
#: What TorchScript's modules have instead of such dicts.
_SCRIPTED = tuple((kind, kind.items) for kind in (torch.jit._script.OrderedDictWrapper, torch.jit._script.OrderedModuleDict))


class _Seen:
    """An output, with some of its elements as they were when it was seen. Nobody else knows which."""

    def __init__(self, output: Any, samples: int = _SAMPLES) -> None:
        self.output = output
        self._how = int.from_bytes(_random(6), "little"), samples
        self._sample = _sampled(output, *self._how)

    def is_unchanged(self) -> bool:
        return all(map(same_bits, _sampled(self.output, *self._how), self._sample))


class Refused(Exception):
    """The subject's file is no candidate; the message says why."""


class Subject:
    """The module under evaluation, with what is needed to call it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.device = options["device"]
        self.cuda = self.device != "cpu"
        self.clock: driver.Clock | None = None  # of a GPU
        self.shared = options["shared"]
        self.model: torch.nn.Module | None = None
        self.call_model: Callable[..., Any] | None = None
        self.matched = False
        self.namespace: dict[str, Any] = {}  # of the candidate's file
        self.base: dict[str, torch.Tensor] = {}
        self.weights: dict[str, torch.Tensor] = {}
        self.parameters: list[str] = []  # which of them are parameters
        self.change: tuple[str, int] = ("drawn", 0)
        self.counters: list[str] = []  # buffers that count steps
        self.ties: dict[str, str] = {}  # names of parameters that have another name, with that one
        self.own: set[str] = set()  # buffers that the problem has nothing like
        self.buffers: list[Any] = []  # the inputs of timed calls
        self.described: dict[str, Any] = {}  # what these look like
        self.pool: list[list[Any]] = []
        self.modes: list[str] = []
        self.last: Any = None
        self.previous: list[torch.Tensor] = []
        self.key, self.values = 0, "given"  # what the contents of the last timed call were made by
        self.contents: list[Mixture] = []  # that the inputs are to have in the next one
        self.seen: _Seen | None = None  # the last output, as it was when its call ended
        self.guards: list[torch.Tensor] = []  # around the buffers
        self.places: dict[Any, torch.UntypedStorage] = {}  # where inputs lie that are validated
        self.fences: list[torch.Tensor] = []
        self.held: list[_Seen] = []  # the tensors of the latest outputs
        self.fetched: list[_Seen] = []  # the tensors of timed calls' outputs that were fetched, the latest last
        self.flush_buffer: torch.Tensor | None = None
        self.cold = False  # whether the next call finds a flushed cache
        self.output: Arena | DeviceArena | None = None
        self.generators: list[torch.Generator] = []
        self.views: dict[str, list[int]] = {}  # by mode: tensors of the output that may share memory, as the problem's do
        self.mode = ""  # of the latest call
        self.returned: Callable[[Any], None] = lambda output: None  # looks at what a forward left behind
        self.tell: Callable[[int, int], None] = lambda number, ns: None  # the parent a call's time, at once
        self.glimpse: Callable[[], None] = lambda: None  # looks at what looks at an output
        self.glance: Callable[[], None] = lambda: None  # looks at what a timed call left behind
        self.look: Callable[[], None] = lambda: None  # looks at everything else

    # ---- loading -------------------------------------------------------------------------------------------

    def load(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Construct the module, give it the weights where names and shapes agree."""
        state_arena, init_arena = self._arena(fds[0], request["state_bytes"]), Arena.open(fds[1])
        self.output = self._arena(fds[2], request["output_bytes"], writable=True)
        self.base = state_arena.read(request["state"], self.device)
        init = init_arena.read(request["init"], self.device)
        state_arena.close()
        init_arena.close()
        self.modes, self.views = request["modes"], request["views"]
        self.counters, self.ties = request["counters"], request["ties"]
        if request["flush_bytes"]:  # now: whoever is loaded later may bring memory of their own
            self.flush_buffer = _full((request["flush_bytes"] // 4,), 1.0, device=self.device)
        # Those of GPUs are there only once CUDA has started.
        self.generators = [torch.default_generator, *(torch.cuda.default_generators if self.cuda else ())]
        if "baseline" in request:
            make = _baseline(request)
        else:
            make, self.namespace = _candidate(request["path"], init)
        self.model = construct(make, self.device, request["construction"])
        if not isinstance(self.model, torch.nn.Module):
            raise Refused(f"ModelNew(...) is a {type(self.model).__name__}, not a torch.nn.Module")
        self.parameters = list(_parameters(self.model))
        own = _parameters(self.model) | _buffers(self.model)
        for name, value in own.items():
            if not is_tensor(value):
                raise Refused(f"{name} is a {type(value).__name__}, not a tensor")
        self.matched = {k: (v.shape, v.dtype) for k, v in own.items()} == {
            k: (v.shape, v.dtype) for k, v in self.base.items()}
        if self.matched:
            self._set_weights(force=True)
        else:
            missing = [(v.shape, v.dtype) for k, v in self.base.items() if k not in own]
            self.own = {k for k, v in own.items() if k not in self.base and (v.shape, v.dtype) not in missing}
            self.base = self.weights = {k: v.detach().clone() for k, v in own.items()}
        self.call_model = self.model
        if request.get("baseline", "eager") != "eager":
            self.call_model = _compiled(self.model, request["baseline"])
        return {"matched": self.matched}

    def _arena(self, fd: int, size: int, *, writable: bool = False) -> Arena | DeviceArena:
        return open_arena(fd, size, self.device, self.shared, writable=writable)

    def _set_weights(self, how: str = "drawn", turn: int = 0, *, force: bool = False) -> None:
        """Load the weights as changed; where they are unchanged, only what forwards may change."""
        assert self.model is not None
        change = how, turn if how != "drawn" else 0
        if not self.matched:
            self._restore_buffers()
        elif force or change != self.change:
            self.weights = change_weights(self.base, how, turn, self.counters, self.ties)
            self.model.load_state_dict(self.weights)
            self.change = change
        else:
            self._restore_buffers()

    def _restore_buffers(self, key: int = 0, mode: str = "eval") -> None:
        """Write the buffers that are not as they were, or in train mode as ``key`` says; what was folded from the
        others stays right."""
        assert self.model is not None
        names = self.weights.keys() - self.own
        found = {name: buffer for name, buffer in _buffers(self.model).items() if name in names}
        with _no_grad():
            for name, value in moved_buffers(
                {name: self.weights[name] for name in found}, key, mode, self.counters
            ).items():
                if not _bitwise(found[name], value):
                    _copy(found[name], value)

    # ---- validation ----------------------------------------------------------------------------------------

    def run(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Two forwards on the same inputs: output, buffers, what they alias, whether anything else changed.

        The second draws the same random numbers as the first, or with ``go_on`` those that come next.
        """
        arena = self._arena(fds[0], request["bytes"])
        pristine = arena.read(request["inputs"], self.device)
        guards: list[torch.Tensor] = []
        number = itertools.count()
        inputs = map_tensors(pristine, lambda x: self._guarded(x, guards, next(number)))
        fences = [_fences(guard).clone() for guard in guards]
        arena.close()
        self._set_weights(request["change"], request["turn"])
        first, state = self._forward(inputs, request)
        if not self._plain(first):
            return {"first": describe([first, state])[0]}
        reply: dict[str, Any] = {"mutated": self._mutated(inputs, pristine), "alias": self._alias(first, inputs)}
        self._set_weights(request["change"], request["turn"])
        second, later = self._forward(inputs, request, seeded=not request.get("go_on"))
        reply["mutated"] = reply["mutated"] or self._mutated(inputs, pristine)
        if not all(_bitwise(_fences(guard), fence) for guard, fence in zip(guards, fences)):
            reply["mutated"] = "memory beside an input"
        reply["alias"] = reply["alias"] or self._alias(second, inputs) or self._reused(first, second)
        reply["overwritten"] = not _are_unchanged(_drop_oldest(self.held))
        same = _bitwise([first, state], [second, later])
        reply |= self._write("first", [first, state], request["place"])
        if not same:
            reply |= self._write("second", [second, later], request["end"])
        return reply | {"repeatable": same}

    def _copied(self, x: torch.Tensor) -> torch.Tensor:
        return _copy(self._empty_alike(x), x)

    def _empty_alike(self, x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=self.device)

    def _guarded(self, x: torch.Tensor, guards: list[torch.Tensor], number: int | None = None) -> torch.Tensor:
        """A copy of ``x`` with NaN, or the largest number, on both sides: reading beyond it shows, and writing. Of an
        input with a ``number``, the copies of one size lie in one place, and none has been written to more often than
        another: who knows a tensor by its address or version takes one for another."""
        fill = float("nan") if is_inexact(x) else True if x.dtype == torch.bool else torch.iinfo(x.dtype).max
        size = span(x) + 2 * _FENCE
        key = (number, size, x.dtype)
        place = self.places.get(key)
        if place is None:
            place = torch.empty(size, dtype=x.dtype, device=self.device).untyped_storage()
        if number is not None:
            self.places[key] = place
        guard = torch.empty(0, dtype=x.dtype, device=self.device).set_(place, 0, (size,), (1,))
        _fill(guard, fill)
        guards.append(guard)
        return _copy(guard.as_strided(x.shape, x.stride(), _FENCE), x)

    def _forward(
        self, inputs: list[Any], request: dict[str, Any], *, seeded: bool = True
    ) -> tuple[Any, dict[str, torch.Tensor]]:
        assert self.model is not None and self.call_model is not None
        self.mode = request["mode"]
        self.model.train(self.mode == "train")
        self._poison(request["sizes"])
        if seeded:
            self._seed(request["rng"])
        with _no_grad():
            output = self.call_model(*inputs)
        self._wait()
        if self._plain(output):
            self.returned(output)
        return output, self._state()

    def _seed(self, number: int) -> None:
        """Have random numbers begin anew; ``torch.manual_seed`` would ask devices that a candidate may add."""
        for generator in self.generators:
            _seed(generator, number)

    def _plain(self, output: Any) -> bool:
        """Whether its tensors have bytes on the device, which can be looked at."""
        found = [leaf for leaf in nodes(describe(output)[0]) if leaf["kind"] in ("tensor", "other")]
        return all(leaf.get("device") == self.device.partition(":")[0] for leaf in found)

    def _state(self) -> dict[str, torch.Tensor]:
        """The buffers as they are now."""
        assert self.model is not None
        return {name: buffer.detach().clone() for name, buffer in _buffers(self.model).items() if name in self.weights}

    def _poison(self, sizes: list[list[int]]) -> None:
        """Fill the allocator's free blocks of the output's size with NaN: an unwritten element shows. (On the CPU
        the C library fills every block.)"""
        if self.cuda:
            blocks = [_full(size, float("nan"), device=self.device) for size in sizes for _ in range(_POISON_BLOCKS)]
            self._wait()
            del blocks

    def _mutated(self, inputs: list[Any], pristine: list[Any]) -> str:
        for index, (mine, given) in enumerate(zip(inputs, pristine)):
            if not _bitwise(mine, given):
                return f"input {index}"
        return ""

    def _alias(self, output: Any, inputs: list[Any]) -> str:
        assert self.model is not None
        output = self._fresh(output)
        if _overlaps(output, tensors(inputs)):
            return "an input"
        if _overlaps(output, [*_parameters(self.model).values(), *_buffers(self.model).values()]):
            return "a parameter or buffer"
        return ""

    def _reused(self, first: Any, second: Any) -> str:
        """Whether a forward returns memory of an earlier call's output. The latest outputs are held, so that nobody else
        gets their memory."""
        first, second = self._fresh(first), self._fresh(second)
        reused = _overlaps(second, tensors([first])) or _overlaps([first, second], [held.output for held in self.held])
        self.held.extend(_Seen(x, _HELD_SAMPLES) for x in tensors([first, second]))
        return "an earlier call's output" if reused else ""

    def _fresh(self, output: Any) -> list[torch.Tensor]:
        """The tensors of ``output``, the latest call's, that must be of memory of their own."""
        return [x for index, x in enumerate(tensors(output)) if index not in self.views.get(self.mode, ())]

    def _write(self, name: str, value: Any, offset: int) -> dict[str, Any]:
        """Describe ``value`` and write its bytes where the oracle reads them, if they fit."""
        assert self.output is not None
        node, end = describe(value, offset)
        if end <= self.output.size:
            self.output.write(value, node)
        return {name: node, "end": end}

    def audit(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What must not have changed: parameters, and outputs of earlier calls."""
        assert self.model is not None
        changed, found = "", _parameters(self.model)
        for name in self.parameters:
            if name not in found or not _holds(found[name], self.weights[name]):
                changed = f"parameter {name}"
        return {"mutated": changed, "overwritten": not _are_unchanged([*self.held, *self.fetched])}

    # ---- timing --------------------------------------------------------------------------------------------

    def prepare(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Get ready to be timed: the pool of inputs, and how long calls take."""
        assert self.model is not None
        self.held, self.places = [], {}
        if not self.cuda:
            _fill_allocations(0)
        arena = self._arena(fds[0], request["pool_bytes"])
        self.pool = [map_tensors(inputs, self._copied) for inputs in arena.read(request["pool"], self.device)]
        # As in a run that is validated: by its inputs, nobody tells one from the other.
        self.buffers = map_tensors(self.pool[0], lambda x: self._guarded(x, self.guards))
        self.described = describe(self.buffers)[0]
        self.fences = [_fences(guard).clone() for guard in self.guards]
        arena.close()
        self._set_weights(force=True)
        first = self._host_ns()
        steady = min(self._host_ns() for _ in range(2))
        launch = min(self._launch_ns() for _ in range(3)) if self.cuda else 0
        gc.freeze()  # nor does the garbage collector list what is the harness's
        return {"first_ns": first, "steady_ns": steady, "launch_ns": launch}

    def _wait(self) -> None:
        """Wait until the device is idle; the CPU is."""
        if self.clock is not None:
            self.clock.wait()

    def _host_ns(self) -> int:
        """A call from its start to the device's idleness."""
        started = _now()
        self._call_all()
        self._wait()
        return _now() - started

    def _launch_ns(self) -> int:
        """A call until it returns."""
        self._wait()
        started = _now()
        self._call_all()
        return _now() - started

    def _call_all(self) -> None:
        """One forward in each mode."""
        assert self.model is not None and self.call_model is not None
        with _no_grad():
            for mode in self.modes:
                self._set_mode(mode)
                self.last = self.call_model(*self.buffers)

    def _set_mode(self, mode: str) -> None:
        assert self.model is not None
        self.mode = mode
        if self.model.training != (mode == "train"):
            self.model.train(mode == "train")

    def arm(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Get ready for one call: running statistics as the oracle has them, random numbers that begin anew, contents
        that were never there before, and a cold cache if asked for. What of this the candidate can see comes first,
        while the contents are still the old ones. On a GPU, the new ones, and the cold cache, come with the call itself;
        on the CPU, where a thread may look on, a column of the contents does."""
        look = self.look if request["watched"] else lambda: None
        look()
        late = self._is_late()
        if describe(self.buffers)[0] != self.described:
            return {"mutated": "an input"}
        self.key = key = request["key"]
        self.values = request["values"]
        self.cold = request["cold"]
        self.previous, self.last = self._fresh(self.last), None  # held, so that nobody else gets its memory
        self._set_mode(request["mode"])
        self._restore_buffers(key, request["mode"])
        look()  # what is replaced for a moment, to learn of the contents, is replaced now
        self._seed(seed_of(key))
        self.contents = list(mixtures(self.buffers, self.pool, key, self.values))
        if self.cuda:
            self.contents = [content.pinned() for content in self.contents]
            driver.reset_persisting_cache()
            self._wait()
        else:
            for content in self.contents:
                content.fill(but_a_column=True)
            self._flush()
        return {"late": late}

    def _flush(self) -> None:
        if self.flush_buffer is not None and self.cold:
            _multiply(self.flush_buffer, -1.0)

    def go(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The call that was armed; ``ns`` is its time, which goes out first, when the device is idle; ``exposed``
        whether launching is part of it where it should not, ``behind_ns`` how much later than its stream the device was
        done, ``launch_ns`` what launching took."""
        with _no_grad():
            if self.clock is None:
                reply = self._time_processor()
            elif request["how"] == "event":
                reply = self._time_stream(self.clock, request["sleep_ns"], fenced=request["fenced"])
            else:
                reply = self._time_device(self.clock)
        self.glimpse()  # what it put in the place of something for a moment is there now
        # What computes when it is looked at does so here, before the time goes out: what it queued is waited for.
        self.seen = _Seen(self.last)
        self._wait()
        self.tell(request["id"], reply["ns"])
        _gc_disable()  # its callbacks and finalizers would run beside a call
        earlier = [*self.previous, *(fetched.output for fetched in self.fetched)]
        alias = _overlaps(self._fresh(self.last), earlier)
        self.previous = []  # with what its end may set off, before the next call is armed
        self.glance()
        return reply | {"alias": alias}

    def _time_processor(self) -> dict[str, Any]:
        assert self.call_model is not None
        for content in self.contents:
            content.fill_column()
        started = _now()
        self.last = self.call_model(*self.buffers)
        return {"ns": _now() - started}

    def _time_device(self, clock: driver.Clock) -> dict[str, Any]:
        """Time until the device is idle."""
        assert self.call_model is not None
        self._renew(clock, 0)
        clock.wait()
        started = _now()
        self.last = self.call_model(*self.buffers)
        clock.wait()
        return {"ns": _now() - started}

    def _time_stream(self, clock: driver.Clock, sleep_ns: int, *, fenced: bool) -> dict[str, Any]:
        """Time between two events, with work queued in front of the first so that launches do not count; whether that
        work ended before everything was launched.

        Where it is ``fenced``, no stream begins before the first event, or the time of what does would not count; and a
        third event, behind all streams, tells of work that its own did not wait for. Where it is not, who does not wait
        for the stream meets the contents of the call before.
        """
        assert self.call_model is not None
        self._renew(clock, sleep_ns)
        clock.begin(fenced=fenced and clock.can_fence)
        self.last = self.call_model(*self.buffers)
        return clock.end()

    def _renew(self, clock: driver.Clock, sleep_ns: int) -> None:
        """Queue that much work, the contents of this call, and a flush. Until that work is done the contents are
        nowhere: what runs ahead of its stream finds the old ones."""
        clock.forget_window()
        if sleep_ns:
            _sleep(int(sleep_ns * _GHZ))
        for content in self.contents:
            content.fill()
        self._flush()

    def fetch(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Write out what the last timed call returned, and the buffers after it; whether the inputs are the same."""
        pristine = map_tensors(self.buffers, self._empty_alike)
        recombine(pristine, self.pool, self.key, self.values)
        mutated = self._mutated(self.buffers, pristine)
        if not all(_bitwise(_fences(guard), fence) for guard, fence in zip(self.guards, self.fences)):
            mutated = "memory beside an input"
        # Held: who uses some outputs in turns comes back to one.
        latest = self._fresh(self.last)
        self.fetched.extend(_Seen(x, _HELD_SAMPLES) for x in latest)
        overwritten = not _are_unchanged(_drop_oldest(self.fetched, len(latest)))
        return {"mutated": mutated, "late": self._is_late(), "overwritten": overwritten} | self._write(
            "output", [self.last, self._state()], 0)

    def _is_late(self) -> bool:
        """Whether the last output is not what it was when its call ended."""
        return self.seen is not None and not self.seen.is_unchanged()

    def profile(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What labels are made of; nothing is asked of this worker afterwards."""
        assert self.model is not None
        load, keys = self.model.load_state_dict, iter(request["keys"])
        return profile.take(profile.Calls(
            call=self._call_all,
            fresh=lambda: recombine(self.buffers, self.pool, next(keys)),
            reload=lambda: load(self.weights),
            wait=self._wait,
            drop=self._drop,
            known=self._known,
            model=self.model,
            namespace=self.namespace,
        ), self.device)

    def _drop(self) -> None:
        self.last, self.previous, self.seen, self.fetched, self.held = None, [], None, [], []

    def _known(self) -> list[torch.Tensor]:
        """Weights, inputs, and the last output if it is still there."""
        assert self.model is not None
        return [*_parameters(self.model).values(), *_buffers(self.model).values(), *tensors([self.buffers, self.last])]


def _parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters by name, as they are: a model may override the methods that tell of them."""
    return _members(model, "_parameters")


def _buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The buffers of the state dict by name, as they are."""
    return _members(model, "_buffers")


def _members(module: torch.nn.Module, kind: str, prefix: str = "", seen: frozenset[int] = frozenset()) -> dict[
        str, torch.Tensor]:
    own = _attributes(module)
    left_out = _get(own, "_non_persistent_buffers_set", ()) if kind == "_buffers" else ()
    found = {prefix + k: v for k, v in _entries(own, kind) if v is not None and k not in left_out}
    for name, inner in _entries(own, "_modules"):
        if inner is not None and id(inner) not in seen:
            found |= _members(inner, kind, f"{prefix}{name}.", seen | {id(module)})
    return found


def _entries(own: dict[str, Any], kind: str) -> Iterable[tuple[str, Any]]:
    """The entries of a module's dict of that name."""
    found = _get(own, kind)
    if isinstance(found, dict):
        return _items(found)
    return next((items(found) for scripted, items in _SCRIPTED if type(found) is scripted), ())


def _bitwise(a: Any, b: Any) -> bool:
    """Whether two values are the same bit for bit; values of unlike structure are not."""
    if describe(a)[0] != describe(b)[0]:
        return False
    return all(same_bits(x, y) for x, y in zip(tensors(a), tensors(b)))


def _holds(parameter: Any, value: torch.Tensor) -> bool:
    """Whether a parameter is the same as ``value`` bit for bit, however it lies in memory."""
    if not is_tensor(parameter) or (parameter.shape, parameter.dtype, parameter.device) != (
            value.shape, value.dtype, value.device):
        return False
    return same_bits(parameter.detach(), value)


def _fences(guard: torch.Tensor) -> torch.Tensor:
    """What lies before and behind the tensor in ``guard``."""
    return torch.cat([guard[:_FENCE], guard[-_FENCE:]])


def _sampled(output: Any, key: int, samples: int) -> list[torch.Tensor]:
    """Some elements of each tensor, one on each page at least, from a place that ``key`` says."""
    found = []
    for x in tensors([output]):
        x, length = x.detach(), span(x)
        if length > x.numel():  # with gaps: most of what lies there is nobody's
            x, length = x.reshape(-1), x.numel()
        step = max(1, min(_PAGE // x.element_size(), length // samples))
        start = key % min(step, max(length, 1))
        count = max(0, -(-(length - start) // step))
        found.append(x.as_strided((count,), (step,), x.storage_offset() + start).clone())
    return found


def _drop_oldest(held: list[_Seen], least: int = 0) -> list[_Seen]:
    """Let go of the oldest of ``held``, each of one tensor, until they are small enough or only ``least`` are left; those
    that were let go."""
    dropped = []
    while len(held) > least and sum(seen.output.untyped_storage().nbytes() for seen in held) > _HELD_BYTES:
        dropped.append(held.pop(0))
    return dropped


def _are_unchanged(seen: Iterable[_Seen]) -> bool:
    """Whether nobody wrote over any of these outputs since they were seen."""
    return all(one.is_unchanged() for one in seen)


def _span(x: torch.Tensor) -> tuple[int, int]:
    storage = x.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _overlaps(output: Any, others: list[torch.Tensor]) -> bool:
    """Whether a tensor of ``output`` shares memory with one of ``others``."""
    spans = [_span(x) for x in others if x.numel()]
    return any(
        start < other_end and other_start < end
        for start, end in (_span(x) for x in tensors(output) if x.numel()) for other_start, other_end in spans
    )


def _candidate(path: str, init: list[Any]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Import the candidate's file; what constructs its module, and the names of the file."""
    spec = importlib.util.spec_from_file_location("kgen_candidate", path)
    assert spec is not None and spec.loader is not None
    module = ModuleType("kgen_candidate")
    module.__file__, module.__spec__ = path, spec
    sys.modules["kgen_candidate"] = module
    spec.loader.exec_module(module)
    if not isinstance(getattr(module, "ModelNew", None), type):
        raise Refused("the file has no class ModelNew")
    return lambda: module.ModelNew(*init), vars(module)


def _baseline(request: dict[str, Any]) -> Callable[[], Any]:
    from kgen.problem import Problem, load

    return load(Problem(**request["problem"])).model


def _compiled(model: torch.nn.Module, name: str) -> Callable[..., Any]:
    mode = {"compile": "default", "compile-max-autotune": "max-autotune-no-cudagraphs"}[name]
    return torch.compile(model, mode=mode)


def _fill_allocations(byte: int) -> None:
    """Have the C library fill every block that it gives out with the complement of ``byte`` (0: leave it alone)."""
    try:
        ctypes.CDLL(None).mallopt(_PERTURB, byte)
    except AttributeError:
        print("the C library has no mallopt: allocated memory is not poisoned", flush=True)


def _failure(error: BaseException) -> dict[str, Any]:
    text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS]
    memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY))
    return {"error": f"{type(error).__name__}: {text}" if text else type(error).__name__, "memory": memory}


def _put_up_walls(options: dict[str, Any]) -> list[str]:
    """Hold a candidate's process; the names of the walls that the system does not allow."""
    return options["missing_walls"] + sandbox.hold(sandbox.Hold(
        writable=[Path(folder) for folder in options["writable"]],
        devices=[Path(path) for path in ("/dev/null", "/dev/zero", *glob.glob("/dev/nvidia*"))],
        user=options["user"] if options["own_user"] else None,
        mounts=options["mounts"],
        address_space=options["host_bytes"] if options["device"] == "cpu" else None,
        file_bytes=_FILE_BYTES,
        folder_bytes=options["scratch_bytes"],
        processes=options["processes"],
    ))


def _teller(send: Callable[..., int]) -> Callable[[int, int], None]:
    """What sends the time of the call with that request's number: text that is made without looking anything up."""
    def tell(number: int, ns: int) -> None:
        send([f'j{{"id":{number},"ns":{ns}}}'.encode()])

    return tell


def _compile_alone() -> None:
    """Have torch.compile start no processes, which would live on and wait for more to compile. It reads its environment
    when it is loaded, which the server has done or the candidate may do: it takes a second."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if config := sys.modules.get("torch._inductor.config"):
        config.compile_threads = 1


def _try_device(device: str) -> None:
    torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)
    torch.cuda.synchronize()


def main(channel: Channel, options: dict[str, Any]) -> None:
    """The worker's process: walls, then requests until the channel closes."""
    sys.stdout.reconfigure(line_buffering=True)  # who asks it to flush later runs what a candidate put there
    os.chdir(options["scratch"])
    gc.collect()
    gc.disable()  # in a timed call and in any other: which one it is shows nowhere
    subject = Subject(options)
    if subject.cuda:
        # CUDA starts, and cuBLAS is loaded, while this process may still do what they need.
        torch.cuda.set_device(options["device"])
        _try_device(options["device"])
        subject.clock = driver.Clock(torch.cuda.current_device())
        torch.cuda.set_per_process_memory_fraction(options.get("device_share", 1.0))
    missing = _put_up_walls(options) if options["walled"] else []
    if subject.clock is not None and options["walled"] and not subject.clock.can_fence:
        missing.append("holding streams back until a call begins (CUDA driver 12.5)")
    if subject.cuda:
        _try_device(options["device"])
    torch.set_num_threads(options["threads"])  # starts threads, which Landlock holds only behind the walls
    set_flags(options["accuracy"])
    if options["walled"] and not subject.cuda:
        _fill_allocations(_PERTURB_BYTE)
    handlers = {"load": subject.load, "run": subject.run, "audit": subject.audit, "prepare": subject.prepare,
                "arm": subject.arm, "go": subject.go, "fetch": subject.fetch, "profile": subject.profile}
    channel.receive()
    channel.send({"missing_walls": missing})
    subject.tell = _teller(channel.sock.sendmsg)
    if options.get("watched"):
        _compile_alone()
        subject.returned, subject.glimpse, subject.glance, subject.look = tampering.install(
            options["writable"], options["device"], channel.sock.sendmsg, subject)
    else:
        subject.glimpse, subject.glance = tampering.pretend(options["device"])
    gc.freeze()
    while True:
        request, fds = channel.receive()
        try:
            reply = handlers[request["do"]](request, fds)
        except driver.DriverError as error:
            reply = {"error": str(error), "memory": False, "unshared": request["do"] == "load"}
        except Refused as error:
            reply = {"error": str(error), "memory": False}
        except BaseException as error:
            traceback.print_exc()
            reply = _failure(error)
        if request["do"] in _WATCHED:
            subject.look()
        channel.send(reply | {"id": request["id"]})
