"""The worker's part of judging a foreign candidate: the sandbox, tamper detection, and calls that give nothing away.

A timed call has two halves, *prepare* and *run*. On a GPU the new contents are queued only in the second half, behind
other work of the same stream. Code that does not wait for its stream finds the contents of the call before.
"""

import gc
import os
import time
from typing import Any, Callable, Iterable, Mapping

import torch
import torch._inductor.config

from kgen.evaluator.candidates.calls import FILE_BYTES
from kgen.evaluator.candidates.guards import FENCE, Guard, bitwise, earlier, guarded
from kgen.evaluator.candidates.worker import Subject
from kgen.evaluator.correctness.distributions import Mixture, seed_of
from kgen.evaluator.correctness.operators import Counted
from kgen.evaluator.correctness.reference import Run
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.arena import describe, is_inexact, is_on, map_tensors, same_bits, span, tensors
from kgen.evaluator.runtime.channel import Channel
from kgen.evaluator.strict import tampering
from kgen.evaluator.strict.left_out import unread
from kgen.evaluator.strict.profile import own_share

_HELD_BYTES = 1 << 28  #: bytes of earlier outputs that are held
_WATCHED = ("load", "make", "audit")  #: requests after which everything is compared
_PAGE = 4096  #: bytes
_SAMPLES, _HELD_SAMPLES = 4096, 1 << 18  #: elements of a larger tensor that are read, at least

_random, _gc_disable, _now, _no_grad = os.urandom, gc.disable, time.perf_counter_ns, torch.no_grad


class _Seen:
    """An output with a sample of its elements. The elements are secret."""

    def __init__(self, output: Any, samples: int = _SAMPLES) -> None:
        self.output = output
        self._how = int.from_bytes(_random(6), "little"), samples
        self._sample = _sampled(output, *self._how)

    def is_unchanged(self) -> bool:
        return all(map(same_bits, _sampled(self.output, *self._how), self._sample))


class StrictSubject(Subject):
    """A foreign candidate, or a baseline whose calls must cost as much around them as a candidate's."""

    sees_launches = False
    holds_outputs = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.previous: list[torch.Tensor] = []  # of the call before
        self.contents: list[Mixture] = []  # of the inputs in the next call
        self.cold = False  # whether the next call finds a flushed cache
        self.seen: _Seen | None = None  # the latest output when its call ended
        self.places: dict[Any, torch.UntypedStorage] = {}  # the memory of inputs in validation
        self.held: list[_Seen] = []  # tensors of the latest outputs in validation, then of timed ones that were fetched
        self.hooks = tampering.Hooks(*[lambda: None] * 4)
        self.own_kernels: list[str] = []  # names of its own, where it was profiled
        self.tell: Callable[[int, int], None] = lambda number, ns: None  # sends a call's time at once
        self.answers("prepare_call", "run_call", "profile", "operators", "unread")

    def start(self) -> None:
        self.runtime.start(fenced=True)

    def confine(self, options: Mapping[str, Any]) -> list[str]:
        """Enter the sandbox. Returns its parts that the system does not allow."""
        missing = (
            options["missing_sandbox"]
            + sandbox.confine(
                sandbox.foreign(
                    options, address_space=self.runtime.address_space(options["host_bytes"]), file_bytes=FILE_BYTES
                )
            )
            if options["sandboxed"]
            else []
        )
        return missing + self.runtime.confined()

    def begin(self, channel: Channel, options: Mapping[str, Any]) -> None:
        """Install tamper detection; a baseline only spends the same time."""
        self.tell = _teller(channel.sock.sendmsg)
        watched = options["kind"] == "candidate"
        note = tampering.teller(channel.sock.sendmsg) if watched else lambda text: None
        self.hooks = tampering.hooks(self.runtime.switches(), note, self)
        if watched:
            torch._inductor.config.compile_threads = 1  # its processes would outlive a call
            tampering.watch(options["writable"], note)

    def before_answer(self, do: str) -> None:
        if do in _WATCHED:
            self.hooks.look()

    def run(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        reply = super().run(request, fds)
        if "alias" in reply:
            reply["overwritten"] = not _are_unchanged(_drop_oldest(self.held))
        return reply

    def _guarded_inputs(self, pristine: list[Any], guards: list[Guard]) -> list[Any]:
        """Copies between fences. Inputs of one size always lie in the same memory, written equally often: results
        remembered by address or by version are wrong."""
        return map_tensors(pristine, lambda x: guarded(x, self.device, guards, self._place(x, len(guards))))

    def _place(self, x: torch.Tensor, number: int) -> torch.Tensor:
        size = span(x) + 2 * FENCE
        key = (number, size, x.dtype)
        if key not in self.places:
            self.places[key] = torch.empty(size, dtype=x.dtype, device=self.device).untyped_storage()
        return torch.empty(0, dtype=x.dtype, device=self.device).set_(self.places[key], 0, (size,), (1,))

    def wake(self) -> None:
        """Inputs of timed calls lie elsewhere than those of validation, which may have had the same memory. A graph
        that was captured there reads other elements."""
        if not self.buffers:
            self.buffers = map_tensors(self.pool[0], self._shifted)

    def _shifted(self, x: torch.Tensor) -> torch.Tensor:
        guard = torch.empty(span(x) + 3 * FENCE, dtype=x.dtype, device=self.device)
        return guarded(x, self.device, self.guards, guard[FENCE:])

    def _forward(self, inputs: list[Any], request: dict[str, Any], *, seeded: bool = True) -> Run:
        output, state = super()._forward(inputs, request, seeded=seeded)
        if is_on(output, self.device):
            self.hooks.returned()
        return output, state

    def _reused(self, first: Any, second: Any) -> str:
        """Whether a forward returned memory of an earlier output. The latest outputs are held, so that nothing else
        gets their memory."""
        first, second = self.fresh(first), self.fresh(second)
        reused = earlier(second, first) or earlier([first, second], [held.output for held in self.held])
        self.held.extend(_Seen(x, _HELD_SAMPLES) for x in tensors([first, second]))
        return reused

    def audit(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Whether a parameter or an earlier output changed."""
        return super().audit(request, fds) | {"overwritten": not _are_unchanged(self.held)}

    def rehearse(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        self.held, self.places = [], {}
        reply = super().rehearse(request, fds)
        if self.runtime.queues:  # one call's bits are in pinned memory while the next one's are made
            both = [[content.pinned() for content in self.mixtures(0)] for _ in range(2)]
            for contents in both:
                for content in contents:
                    content.fill()
            self.wait()
        return reply

    def rest(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        self.previous, self.contents, self.seen = [], [], None
        self.held, self.places = [], {}
        return super().rest(request, fds)

    def prepare_call(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The first half of a timed call: buffers, random numbers, and on the CPU contents and flush. Steps that a
        candidate could observe come first, while the inputs still have their old contents."""
        look = self.hooks.look if request["watched"] else lambda: None
        look()
        late = self._is_late()
        self.wake()
        if describe(self.buffers)[0] != describe(self.pool[0])[0]:
            return {"mutated": "an input"}
        self.key = key = request["key"]
        self.cold = request["cold"]
        self.previous, self.last = self.fresh(self.last), None  # held, so that nothing else gets its memory
        self.set_mode(request["mode"])
        self.state.restore()
        look()  # functions that are replaced for a moment to observe the contents are replaced now
        self.seed(seed_of(key))
        self.contents = list(self.mixtures(key))
        if self.runtime.queues:
            self.contents = [content.pinned() for content in self.contents]
            self.runtime.clock.reset_persisting_cache()
            self.wait()
        else:
            self._fill_and_flush()
        return {"late": late}

    def run_call(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The second half of a timed call. ``ns``, its time, is sent first. On a GPU the rest has ``exposed`` (launches
        were timed too), ``launch_ns`` and ``behind_ns`` (how much later than its stream the device was idle). An
        ``unfenced`` call holds no stream back: work that does not wait for its stream finds the old contents."""
        with _no_grad():
            clock, by_events = self.runtime.clock, request["how"] in ("event", "unfenced")
            if self.runtime.queues:
                self._renew_contents(request["sleep_ns"] if by_events else 0)
            if by_events:
                self.last, reply = clock.timed(self.call_model, self.buffers, fenced=request["how"] == "event")
            else:
                clock.wait()
                started = _now()
                self.last = self.call_model(*self.buffers)
                clock.wait()
                reply = {"ns": _now() - started}
        self.hooks.glimpse()  # functions that are replaced for a moment are replaced now
        # An output that computes when it is read does so here, before the time is sent; queued work is waited for.
        self.seen = _Seen(self.last)
        self.wait()
        self.tell(request["id"], reply["ns"])
        _gc_disable()  # its callbacks and finalizers would run beside a call
        before = [*self.previous, *(held.output for held in self.held)]
        alias = earlier(self.fresh(self.last), before)
        self.previous = []  # finalizers run now, before the next call is prepared
        self.hooks.glance()
        return reply | {"alias": alias}

    def _renew_contents(self, sleep_ns: int) -> None:
        """Queue work of ``sleep_ns``, then this call's contents and a flush. Until that work is done the contents
        are nowhere: code that runs ahead of its stream finds the old ones."""
        self.runtime.clock.forget_window()
        self.runtime.queue(sleep_ns)
        self._fill_and_flush()

    def _fill_and_flush(self) -> None:
        for content in self.contents:
            content.fill()
        self.flush(self.cold)

    def fetch(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        reply = super().fetch(request, fds)
        # Held: an output that is used in turns comes back to one of them.
        latest = self.fresh(self.last)
        self.held.extend(_Seen(x, _HELD_SAMPLES) for x in latest)
        overwritten = not _are_unchanged(_drop_oldest(self.held, len(latest)))
        return reply | {"late": self._is_late(), "overwritten": overwritten}

    def profile(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The share of time in own kernels. The worker times nothing afterwards."""
        found, self.own_kernels = own_share(
            self.call_all, lambda: self.renew(request["key"], self.mode), self.wait, self.runtime
        )
        return found

    def operators(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The library's operators that a forward in each mode calls, with their numbers."""
        self.renew(request["key"], self.mode)
        with Counted() as counted:
            self.call_all()
        self.wait()
        return {"operators": dict(counted.operators)}

    def unread(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Names of kernels without which a forward gives the same output and state. A graph holds more memory: none for
        large problems."""
        if self.frees:
            return {"unread": []}

        def renewal(change: str, number: int, special: bool) -> Callable[[], None]:
            def renew() -> None:
                self.state.use(change)
                self.renew(request["key"] + number, self.mode)
                for x in tensors(self.buffers) if special else ():
                    if is_inexact(x) and x.ndim and x.numel():
                        x[(0,) * x.ndim], x[(-1,) * x.ndim] = float("nan"), float("inf")

            return renew

        renewals = [renewal(*which) for which in (("drawn", 0, False), ("rolled", 1, False), ("drawn", 2, True))]
        with _no_grad():
            return {
                "unread": unread(
                    lambda: self.call_model(*self.buffers),
                    self.runtime.captured,
                    self.own_kernels,
                    renewals,
                    self.state.copied,
                    bitwise,
                )
            }

    def _is_late(self) -> bool:
        """Whether the latest output changed after its call ended."""
        return self.seen is not None and not self.seen.is_unchanged()


def _sampled(output: Any, key: int, samples: int) -> list[torch.Tensor]:
    """Some elements of each tensor, at least one on each page, starting at a place that ``key`` decides."""
    found = []
    for x in tensors([output]):
        x, length = x.detach(), span(x)
        if length > x.numel():  # with gaps, whose memory belongs to others
            x, length = x.reshape(-1), x.numel()
        step = max(1, min(_PAGE // x.element_size(), length // samples))
        start = key % min(step, max(length, 1))
        count = max(0, -(-(length - start) // step))
        found.append(x.as_strided((count,), (step,), x.storage_offset() + start).clone())
    return found


def _drop_oldest(held: list[_Seen], least: int = 0) -> list[_Seen]:
    """Remove the oldest of ``held`` until the rest is small enough or only ``least`` are left. Returns those
    removed."""
    dropped = []
    while len(held) > least and sum(seen.output.untyped_storage().nbytes() for seen in held) > _HELD_BYTES:
        dropped.append(held.pop(0))
    return dropped


def _are_unchanged(seen: Iterable[_Seen]) -> bool:
    """Whether these outputs still have the elements that were read."""
    return all(one.is_unchanged() for one in seen)


def _teller(send: Callable[..., int]) -> Callable[[int, int], None]:
    """A function that sends a call's time as text, without looking anything up."""

    def tell(number: int, ns: int) -> None:
        send([f'j{{"id":{number},"ns":{ns}}}'.encode()])

    return tell
