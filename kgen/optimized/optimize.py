"""The conductor of ``kgen.optimize``: looks a module up, sweeps what is not known, and puts winners behind a twin.

module ── twin, observe ── fingerprint ──> store: winners
                                │ nothing known
                                └─ export ── sweep ──> winner, kept in the store
winners ── link, compare with the module itself ──> twin that dispatches
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from kgen import paths
from kgen.devices.kinds import KINDS
from kgen.devices.machine import find_own_tools
from kgen.devices.runtime import runtime
from kgen.errors import DeviceError, InputError, KgenError, NotFoundError
from kgen.evaluator.candidates.build import Builder
from kgen.optimized import trial
from kgen.optimized.calls import copied, tensors_of
from kgen.optimized.dispatch import Dispatch
from kgen.optimized.fingerprint import fingerprint
from kgen.optimized.found import NOT_FASTER, Call, Found, FoundPart, Options
from kgen.optimized.report import Part, Report, Tried
from kgen.optimized.twin import REPORT, set_run, twin
from kgen.optimized.winner import Winner, extension_of
from kgen.problems import live
from kgen.protocol.statistics import Interval
from kgen.store import Database, modules

_COMPARED_SECONDS = 1.0  # of timing the result beside the module that came in


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
    from kgen.optimized.searching import Searching  # its imports take a second, which no warm start needs

    try:
        return Searching(probe, calls, observed, options, time.monotonic() + 60.0 * options.minutes).run()
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
        raise _Slower(f"{NOT_FASTER}: {interval.mid:.2f}x [{interval.low:.2f}, {interval.high:.2f}] in this process")
    return interval
