"""The conductor of ``kgen.optimize``: looks a module up, sweeps what is not known, and puts winners behind a twin.

module ── twin, observe ── fingerprint ──> store: winners
                                │ nothing known
                                └─ export ── sweep ──> winner, kept in the store
winners ── link, compare with the module itself ──> twin that dispatches
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from kgen import paths
from kgen.devices.kinds import KINDS
from kgen.devices.machine import find_own_tools
from kgen.devices.runtime import runtime
from kgen.errors import CaptureError, DeviceError, InputError, KgenError, NotFoundError, ProblemError
from kgen.evaluator.candidates.build import Builder
from kgen.optimized import finding, trial
from kgen.optimized.calls import TensorShape, copied, tensors_of
from kgen.optimized.dispatch import Dispatch
from kgen.optimized.fingerprint import fingerprint
from kgen.optimized.report import Part, Report, Tried
from kgen.optimized.twin import REPORT, set_run, twin, unwatch, watching
from kgen.optimized.winner import Winner, extension_of
from kgen.problems import exported, live
from kgen.problems.problem import Problem
from kgen.protocol import BASELINES, Accuracy
from kgen.protocol.statistics import Interval
from kgen.store import Database, modules, queries, ranking
from kgen.store.selection import Selection
from kgen.tuning import events
from kgen.tuning.opening import SweepRequest
from kgen.tuning.sweep import run

Call = tuple[tuple[Any, ...], dict[str, Any]]

_LEAST_SECONDS = 30.0  # of one sweep; in less, it comes to no finals
_COMPARED_SECONDS = 1.0  # of timing the result beside the module that came in
_STEPS_SECONDS = 2.0


@dataclass(frozen=True)
class Options:
    """The arguments of ``optimize`` beside the module and its inputs."""

    minutes: float = 5.0
    accuracy: Accuracy = Accuracy.PYTORCH
    modules: str | tuple[str, ...] = "auto"
    device: str | None = None
    db: str | None = None
    cached_only: bool = False
    baselines: tuple[str, ...] = BASELINES
    budget: int | None = None  # candidates of each sweep
    weight_copies: bool = True
    tell: Callable[[str], None] = field(default=lambda text: None)


@dataclass(frozen=True)
class FoundPart:
    """Equal submodules by their paths, and a winner for each call of one."""

    paths: tuple[str, ...]
    name: str
    winners: tuple[Winner, ...]


@dataclass(frozen=True)
class Found:
    """The result of a search: winners, and modules without one."""

    parts: tuple[FoundPart, ...] = ()
    tried: tuple[Tried, ...] = ()
    from_store: bool = False
    speedup: Interval | None = None  # of the whole, in the process that searched


def optimize(module: nn.Module, calls: Sequence[Call], options: Options) -> nn.Module:
    """A twin of a module whose forward runs winners where their guards hold. ``calls`` are those to be fast.

    Raises PyTorch's own error where the module does not take a call, and :class:`kgen.errors.KgenError` for a fault of
    the device, a compiler or the database. The module itself stays as it is.
    """
    started = time.monotonic()
    _check(module, calls, options)
    try:
        probe, judged, fast = twin(module, apart=True), twin(module, apart=True), twin(module)
    except TypeError as error:
        raise InputError(f"{type(module).__name__} cannot be optimised: {error}") from error
    key, known = _known(module, calls, options)
    observed = [trial.observe(probe, call, once=isinstance(known, Found)) for call in calls]
    found = (
        known if isinstance(known, Found) else _search(probe, calls, observed, options) if key else Found(tried=known)
    )
    attached, tried = _attach(judged, probe, calls, observed, found)
    speedup = found.speedup
    try:
        measured = _compare(judged, twin(module, apart=True), calls, observed, attached, timed=not found.from_store)
        speedup = measured or speedup
    except _Slower as slower:
        attached, tried = [], [*tried, Tried("", type(module).__name__, str(slower))]
    found = replace(
        found,
        parts=tuple(a.found for a in attached),
        tried=(*found.tried, *tried),
        speedup=speedup if attached else None,
    )
    if key and not found.from_store and not options.cached_only:
        _keep(key, type(module).__name__, found, options)
    parts = [attach_part(fast, a.found, a.calls, a.outcomes, a.libraries) for a in attached]
    vars(fast)[REPORT] = Report(
        type(module).__name__, found.speedup, parts, found.tried, found.from_store, time.monotonic() - started,
    )  # fmt: skip
    return fast


def attach_part(
    fast: nn.Module, found: FoundPart, calls: Sequence[Call], outcomes: Sequence[Any], libraries: dict[str, str]
) -> Part:
    """Put winners behind submodules of a twin. Raises where a file cannot be loaded or linked."""
    made = []
    for path in found.paths:
        owner = fast.get_submodule(path)
        if "forward" in vars(owner):
            raise TypeError(f"the forward of {path or 'the module'} is patched")
        dispatch = Dispatch(owner, path, calls, found.winners, libraries)
        dispatch.attach(outcomes)
        made.append((owner, dispatch))
    for owner, dispatch in made:
        set_run(owner, dispatch)
    return Part(found.paths, found.name, tuple(dispatch for _, dispatch in made))


class _Slower(Exception):
    """The result is not faster, or not right, in this process; the message says which."""


def _check(module: nn.Module, calls: Sequence[Call], options: Options) -> None:
    if hasattr(module, REPORT) and not isinstance(vars(module).get(REPORT), Report):
        raise InputError(
            f"{type(module).__name__} has an attribute {REPORT!r}, where the result has its report: rename it"
        )
    if not options.cached_only and options.minutes <= 0:
        raise InputError(
            f"minutes={options.minutes:g}: give it some time, or cached_only=True for what is known already"
        )
    tensors = tensors_of([[a, k] for a, k in calls])
    if not tensors:
        raise InputError("inputs hold no tensor: kgen needs arguments of forward to tune for")
    devices = {x.device for x in tensors}
    if len(devices) > 1:
        raise InputError(
            f"inputs are on several devices ({', '.join(sorted(map(str, devices)))}): give all of them on one"
        )
    device = devices.pop()
    if device.type not in KINDS:
        raise DeviceError(f"inputs are on {device}: kgen takes tensors of the CPU and of CUDA devices")
    if options.device is not None:
        try:
            asked = torch.device(options.device)
        except RuntimeError as error:
            raise DeviceError(f"{options.device!r} is no device: say cpu, cuda or cuda:N") from error
        if asked.type in KINDS and not runtime(asked).available():
            raise DeviceError(f"{options.device}: torch sees no CUDA device here")
        if asked.type != device.type or (asked.index is not None and asked.index != device.index):
            raise InputError(f"device={options.device!r}, and the inputs are on {device}: move module and inputs first")


# The search


def _settings(options: Options) -> tuple[Any, ...]:
    """All that a stored result holds for, beside the module and its calls."""
    copies = () if options.weight_copies else ("no weight copies",)
    return ("module", options.accuracy, options.modules, *copies, *sorted(live.flags().items()))


def _known(module: nn.Module, calls: Sequence[Call], options: Options) -> tuple[str, Found | tuple[Tried, ...]]:
    """The module's fingerprint, and the stored result if there is one. A module that kgen cannot look at has no
    fingerprint."""
    try:
        key = fingerprint(module, [*calls], _settings(options))
    except Exception as error:  # of attributes and classes of any kind
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return "", (Tried("", type(module).__name__, f"kgen cannot look at it: {reason}"),)
    return key, _stored(key, options) or ()


def _search(probe: nn.Module, calls: Sequence[Call], observed: Sequence[trial.Observed], options: Options) -> Found:
    if options.cached_only:
        return Found(tried=(Tried("", type(probe).__name__, "the store has nothing of it, and cached_only=True"),))
    try:
        return _Searching(probe, calls, observed, options, time.monotonic() + 60.0 * options.minutes).run()
    except KgenError:
        raise
    except Exception as error:  # of modules of any kind; the original runs
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Found(tried=(Tried("", type(probe).__name__, f"kgen cannot look at it: {reason}"),))


def _keep(key: str, name: str, found: Found, options: Options) -> None:
    """Store what was found, and that nothing was."""
    speedup = asdict(found.speedup) if found.speedup else None
    parts = [
        {
            "paths": list(part.paths),
            "winner": {"name": part.name, "sizes": [w.to_json() for w in part.winners], "speedup": speedup},
        }
        for part in found.parts
    ]
    with Database.open(options.db) as database:
        modules.keep(database, modules.StoredModule(key, name, options.minutes, parts))


def _stored(key: str, options: Options) -> Found | None:
    """The stored result of a module; ``None`` where it has to be searched, or searched for longer."""
    try:
        with Database.open(options.db, create=False) as database:
            stored = modules.find(database, key)
            if stored is None or (not stored.parts and options.minutes > stored.minutes and not options.cached_only):
                return None
            parts, speedup = [], None
            for part in stored.parts:
                speedup = Interval(**part["winner"]["speedup"]) if part["winner"]["speedup"] else None
                winners = []
                for one in part["winner"]["sizes"]:
                    texts = modules.texts(database, one["candidate"], one["problem"])
                    if texts is None:
                        return None
                    winners.append(Winner.from_json(one, *texts))
                parts.append(FoundPart(tuple(part["paths"]), str(part["winner"]["name"]), tuple(winners)))
    except NotFoundError:
        return None
    except (KeyError, TypeError, ValueError):  # another version wrote it
        return None
    tried = () if parts else (Tried("", "", f"nothing was faster in a search of {stored.minutes:g} minutes"),)
    return Found(tuple(parts), tried, True, speedup)


class _Searching:
    """One search, until a time on the monotonic clock."""

    def __init__(
        self,
        probe: nn.Module,
        calls: Sequence[Call],
        observed: Sequence[trial.Observed],
        options: Options,
        until: float,
    ) -> None:
        self.probe, self.calls, self.observed, self.options, self.until = probe, calls, observed, options, until
        self.tried: list[Tried] = []
        self.parts: list[FoundPart] = []

    def run(self) -> Found:
        names = self.options.modules
        if isinstance(names, str):
            self._whole(submodules=names == "auto")
        else:
            self._submodules(set(names))
        return Found(tuple(self.parts), tuple(self.tried))

    def _whole(self, submodules: bool) -> None:
        """Sweep the module as a whole; its submodules where that cannot be."""
        name = type(self.probe).__name__
        refused = next((o.reason for o in self.observed if o.reason), "")
        if not refused:
            winners, refused = self._swept(self.probe, name, self.calls, self.until)
            if winners:
                self.parts.append(FoundPart(("",), name, winners))
                return
        self.tried.append(Tried("", name, refused))
        if submodules:
            self._submodules(None)

    def _submodules(self, only: set[str] | None) -> None:
        """Sweep the submodules that take the time, each kind once; those below where one cannot be exported."""
        kinds = finding.hot(self.probe, self.calls[0])
        if only is not None:
            kinds = [k for k in kinds if only & set(k.paths)]
            for kind in kinds:
                kind.paths = [p for p in kind.paths if p in only]
        waiting = finding.tops(kinds)
        while waiting:
            kind = waiting.pop(0)
            share = kind.share / sum(k.share for k in [kind, *waiting])
            left = self.until - time.monotonic()
            if left < min(_LEAST_SECONDS, 30.0 * self.options.minutes):
                self.tried.append(Tried(kind.paths[0], kind.name, "the time was up"))
                continue
            part = self.probe.get_submodule(kind.paths[0])
            observed = trial.observe(part, kind.call)
            winners, reason = (
                ((), observed.reason)
                if observed.reason
                else self._swept(
                    part, kind.name, [kind.call], time.monotonic() + max(left * share, min(left, _LEAST_SECONDS))
                )
            )
            if winners:
                self.parts.append(FoundPart(tuple(kind.paths), kind.name, winners))
                continue
            self.tried.append(Tried(kind.paths[0], kind.name, reason))
            if not reason.startswith(_NOT_FASTER):
                waiting = [*finding.children_of(kind, kinds), *waiting]

    def _swept(self, part: nn.Module, name: str, calls: Sequence[Call], until: float) -> tuple[tuple[Winner, ...], str]:
        """A winner for each call, or the reason why there is none."""
        winners = []
        for number, (args, kwargs) in enumerate(calls):
            watch = watching(part)
            try:
                with trial.apart(part):
                    program = live.program_of(part, args, kwargs)
                if watch.version:
                    return (), "its forward sets attributes"
                title = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
                problem = Problem(
                    title, f"{title}{exported.SUFFIX}", exported.source_of(program, title, (args, kwargs), live.flags())
                )
                seconds = (until - time.monotonic()) / (len(calls) - number)
                winner = self._swept_problem(problem, program, (args, kwargs), max(seconds, 1.0))
            except (CaptureError, ProblemError) as error:
                return (), str(error)
            finally:
                unwatch(part, watch)
            if isinstance(winner, str):
                return (), winner
            winners.append(winner)
        return tuple(winners), ""

    def _swept_problem(self, problem: Problem, program: Any, call: Call, seconds: float) -> Winner | str:
        """Sweep one problem; the winner, or the reason why there is none."""
        options = self.options
        device = tensors_of([*call[0], *call[1].values()])[0].device
        request = SweepRequest(
            problem,
            str(device),
            options.accuracy,
            budget=options.budget,
            seconds=max(seconds, 1.0),
            baselines=options.baselines,
            db=options.db,
            weight_copies=options.weight_copies,
        )
        finished = run(request, _listener(options.tell))
        if finished.state == "interrupted":
            raise KeyboardInterrupt
        with Database.open(options.db) as database:
            ids = [row.id for row in queries.problems(database, source_hash=problem.source_hash)]
            accuracy = options.accuracy if options.accuracy is not Accuracy.TF32 else None  # it may be stored as fp32
            among = Selection(weight_copies=options.weight_copies)
            best = next(iter(ranking.best(database, problem_ids=ids, accuracy=accuracy, among=among)), None)
            trial_row = best.trial if best else None
            if best is None or trial_row is None:
                return f"{_NOT_FASTER}: no right kernel was found"
            interval = trial_row.interval
            if not best.beats_baseline or interval is None:
                figures = (
                    f"{interval.mid:.2f}x [{interval.low:.2f}, {interval.high:.2f}]" if interval else "only screened"
                )
                return f"{_NOT_FASTER} ({figures})"
            source = queries.source(database, trial_row.candidate)
        steps = trial_row.plan_data.steps
        return Winner(
            candidate=trial_row.candidate,
            source=source,
            problem=problem.source_hash,
            problem_source=problem.source,
            shapes=shapes_of(program, call),
            speedup=interval,
            baselines=tuple(trial_row.baselines.items()),
            sweep=trial_row.sweep,
            median_ms=trial_row.median_ms or 0.0,
            kernels=tuple(", ".join(s.operators) for s in steps if s.schedule),
            library=tuple(o for s in steps if not s.schedule for o in s.operators),
        )


_NOT_FASTER = "nothing beats PyTorch here"


def shapes_of(program: Any, call: Call) -> tuple[TensorShape, ...]:
    """The shapes of a call's tensors; the batch is free where the exported program has it free."""
    free = bool(program.range_constraints)
    batch = live.batch_of(pytree.tree_leaves(call)) if free else None
    return tuple(TensorShape.of(x, batch) for x in tensors_of([*call[0], *call[1].values()]))


# Winners at work


@dataclass(frozen=True)
class _Attached:
    """A part at work in a twin, with all that putting it behind another twin takes."""

    part: Part
    found: FoundPart
    calls: Sequence[Call]
    outcomes: Sequence[Any]
    libraries: dict[str, str]


def _attach(
    judged: nn.Module, probe: nn.Module, calls: Sequence[Call], observed: Sequence[trial.Observed], found: Found
) -> tuple[list[_Attached], list[Tried]]:
    """Put winners behind a twin; a part that cannot be loaded or linked stays the original's. ``probe`` shows its
    results."""
    attached, tried = [], []
    for one in found.parts:
        try:
            if one.paths == ("",):
                own, outcomes = [*calls], [seen.outcome for seen in observed]
            else:
                own = [_call_of(probe, one.paths[0], calls[0])]
                outcomes = [trial.outcome(probe.get_submodule(one.paths[0]), call) for call in own]
            device = tensors_of([*own[0][0], *own[0][1].values()])[0].device
            libraries = built(one.winners, device)
            attached.append(
                _Attached(attach_part(judged, one, own, outcomes, libraries), one, own, outcomes, libraries)
            )
        except Exception as error:  # of the file's own code, or torch's
            reason = f"its file cannot be used: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
            tried.append(Tried(one.paths[0], one.name, reason))
    return attached, tried


def _call_of(probe: nn.Module, path: str, call: Call) -> Call:
    """The arguments that a submodule is given in a forward of the whole."""
    got: list[Call] = []
    part = probe.get_submodule(path)
    handle = part.register_forward_pre_hook(lambda _, args, kwargs: got.append((args, kwargs)), with_kwargs=True)
    try:
        trial.outcome(probe, call)
    finally:
        handle.remove()
    if not got:
        raise NotFoundError(f"{path} is not called")
    return got[0]


def built(winners: Sequence[Winner], device: torch.device) -> dict[str, str]:
    """The paths of libraries that are built already, by the contents of their extensions."""
    found = {}
    extensions = [e for e in (extension_of(w.source) for w in winners) if e is not None]
    if not extensions:
        return {}
    find_own_tools()  # those that are missing are built with ninja
    with contextlib.suppress(Exception):  # the files build what is missing themselves
        directory = _builds(device)
        for extension in extensions:
            library = directory.library(extension)
            if library is not None:
                found[extension.content] = library
    return found


def _builds(device: torch.device) -> Builder:
    return Builder(paths.home(), device.type, runtime(device).arch(device), None)


def _compare(judged: nn.Module, plain: nn.Module, calls: Sequence[Call], observed: Sequence[trial.Observed],
             attached: Sequence[_Attached], timed: bool) -> Interval | None:  # fmt: skip
    """Check each call's result beside the module's own, and time the first, beside a twin that is ``plain``.

    Raises :class:`_Slower` where the original is better.
    """
    if not attached:
        return None
    for call, seen in zip(calls, observed):
        exact = trial.doubled(plain, call) if timed else None
        found = trial.outcome(judged, call)
        if reason := trial.agree(seen.outcome, found, exact):
            raise _Slower(f"{reason}, on the inputs that were given")
    fallbacks = Report("", parts=[a.part for a in attached]).fallbacks
    if fallbacks:
        raise _Slower(f"its files refuse the calls: {next(iter(fallbacks))}")
    if not timed:
        return None
    args, kwargs = copied(calls[0])
    device = tensors_of([*args, *kwargs.values()])[0].device
    with trial.apart(judged), trial.apart(plain):
        interval = trial.compared(
            lambda: plain(*args, **kwargs), lambda: judged(*args, **kwargs), device, _COMPARED_SECONDS
        )
    if interval.low <= 1.0:
        raise _Slower(f"{_NOT_FASTER}: {interval.mid:.2f}x [{interval.low:.2f}, {interval.high:.2f}] in this process")
    return interval


def _listener(tell: Callable[[str], None]) -> events.Listener:
    """The events of a sweep as lines, at most one in :data:`_STEPS_SECONDS` of the frequent ones."""
    said = 0.0
    tried = 0

    def listen(event: events.Event) -> None:
        nonlocal said, tried
        if isinstance(event, events.Started):
            tell(f"{event.problem}: {event.plans} plans, at most {event.seconds or 0:.0f} s")
        elif isinstance(event, events.Measured):
            tell("; ".join(f"{name} {ms:.3g} ms" for name, ms in event.baselines))
        elif isinstance(event, events.Evaluated):
            tried += 1
            if time.monotonic() - said > _STEPS_SECONDS:
                said = time.monotonic()
                tell(f"{tried} candidates judged")
        elif isinstance(event, events.Notice):
            tell(event.text)

    return listen
