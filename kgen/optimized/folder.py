"""Folders of optimised modules: the files of winners, their libraries, and a manifest with the hash of each.

fast ── save ──> manifest.json, *.py, *.so
folder, module ── load (hashes first, then code) ──> twin that dispatches; nothing is swept, and built only where no
library fits
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from kgen import paths
from kgen.devices.machine import find_own_tools
from kgen.errors import DiskError, FolderError, InputError
from kgen.optimized import trial
from kgen.optimized.fingerprint import place
from kgen.optimized.found import FoundPart
from kgen.optimized.optimize import attach_part
from kgen.optimized.report import Part, Report, Tried
from kgen.optimized.twin import REPORT, twin
from kgen.optimized.winner import Winner, extension_of
from kgen.protocol import __version__
from kgen.protocol.statistics import Interval

MANIFEST = "manifest.json"
_FORMAT = 1
_log = logging.getLogger("kgen")


def save(fast: nn.Module, folder: Path) -> None:
    """Write the winners of an optimised module into a folder; it holds no weights.

    Raises :class:`InputError` for a module that ``optimize`` did not make, and :class:`DiskError`.
    """
    report = vars(fast).get(REPORT)
    if not isinstance(report, Report):
        raise InputError(f"save() takes a module that kgen.optimize() has made, not a {type(fast).__name__}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {
            "format": _FORMAT, "kgen": __version__, "torch": torch.__version__, "module": report.name,
            "speedup": _plain(report.speedup), "parts": [_part(part, folder) for part in report.parts],
        }  # fmt: skip
        paths.write_whole(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    except OSError as error:
        raise DiskError(f"{folder}: cannot be written: {error.strerror or error}") from error


def load(folder: Path, module: nn.Module) -> nn.Module:
    """The module with the winners of a folder behind it. Code of the folder runs: load only folders that you trust.

    A part that does not fit this module or this machine runs the original; the report says why. Raises
    :class:`FolderError` for a folder that holds no module of this version, or a file with another hash.
    """
    manifest = _manifest(folder)
    texts = _checked(folder, manifest)
    find_own_tools()
    probe, judged, fast = twin(module, apart=True), twin(module, apart=True), twin(module)
    tensors = [*module.parameters(), *module.buffers()]
    device = tensors[0].device if tensors else torch.get_default_device()
    parts: list[Part] = []
    tried: list[Tried] = []
    for entry in manifest["parts"]:
        found = FoundPart(
            tuple(entry["paths"]),
            entry["name"],
            tuple(
                Winner.from_json(one["winner"], texts[one["file"]], texts[one["problem"]]) for one in entry["winners"]
            ),
        )
        try:
            parts.append(_loaded(folder, entry, found, device, probe, judged, fast))
        except _Unfit as unfit:
            tried.append(Tried(found.paths[0], found.name, str(unfit)))
        except Exception as error:  # of the file's own code, the module's, or torch's
            tried.append(
                Tried(found.paths[0], found.name, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
            )
    for one in tried:
        _log.warning("%s: %s of %s runs without kgen: %s", folder, one.path or "all", type(module).__name__, one.reason)
    speedup = Interval(**manifest["speedup"]) if manifest["speedup"] and parts else None
    vars(fast)[REPORT] = Report(type(module).__name__, speedup, parts, tried, from_store=True)
    return fast


class _Unfit(Exception):
    """A part does not fit the module or the machine; the message says why."""


def _loaded(folder: Path, entry: dict[str, Any], found: FoundPart, device: torch.device,
            probe: nn.Module, judged: nn.Module, fast: nn.Module) -> Part:  # fmt: skip
    """A part at work, checked by one forward of both on drawn inputs."""
    positional, names = entry["call"]
    calls = []
    owner = probe.get_submodule(found.paths[0])
    for winner in found.winners:
        values = pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), winner.inputs())
        calls.append((tuple(values[:positional]), dict(zip(names, values[positional:], strict=True))))
    if (here := place(calls)) != entry["place"]:
        raise _Unfit(f"it was made on {entry['place']}, and this is {here}")
    outcomes = [trial.outcome(owner, call) for call in calls]
    libraries = _libraries(folder, entry, found)
    attach_part(judged, found, calls, outcomes, libraries)
    for path in found.paths:
        theirs, mine = probe.get_submodule(path), judged.get_submodule(path)
        for args, kwargs in calls:
            with trial.apart(theirs), trial.apart(mine):
                reason = trial.agree(
                    theirs(*args, **kwargs), mine(*args, **kwargs), trial.doubled(theirs, (args, kwargs))
                )
            if reason:
                raise _Unfit(f"{reason} at {path or 'the module'}")
    if fallbacks := _fallbacks(judged, found.paths):
        raise _Unfit(f"it does not take its own calls: {fallbacks[0]}")
    return attach_part(fast, found, calls, outcomes, libraries)


def _fallbacks(judged: nn.Module, part_paths: Sequence[str]) -> list[str]:
    from kgen.optimized.twin import RUN

    return [reason for path in part_paths for reason in vars(judged.get_submodule(path))[RUN].fallbacks]


def _libraries(folder: Path, entry: dict[str, Any], found: FoundPart) -> dict[str, str]:
    """The folder's libraries by the contents of their extensions, where they were built with this torch."""
    libraries = {}
    for one, winner in zip(entry["winners"], found.winners):
        extension = extension_of(winner.source)
        if extension is None or one["library"] is None:
            continue
        if one["torch"] == torch.__version__:
            libraries[extension.content] = str((folder / one["library"]).resolve())
        else:
            _log.warning("%s: %s was built for torch %s: it is built again", folder, one["library"], one["torch"])
    return libraries


def _part(part: Part, folder: Path) -> dict[str, Any]:
    """A part's entry in the manifest; its files are written."""
    dispatch = part.dispatches[0]
    winners = []
    for winner in part.winners:
        files = {"file": f"{winner.candidate[:16]}.py", "problem": f"{winner.candidate[:16]}.problem.py"}
        for name, text in zip(files.values(), (winner.source, winner.problem_source)):
            paths.write_whole(folder / name, text)
        extension = extension_of(winner.source)
        built = dispatch.libraries.get(extension.content) if extension is not None else None
        library = f"{winner.candidate[:16]}.so" if built and Path(built).is_file() else None
        if library and built:
            shutil.copyfile(built, folder / library)
        every = [*files.values(), *([library] if library else [])]
        hashes = {name: _hash(folder / name) for name in every}
        winners.append(
            {**files, "library": library, "torch": torch.__version__, "hashes": hashes, "winner": winner.to_json()}
        )
    return {
        "paths": list(part.paths), "name": part.name, "call": list(map(_listed, dispatch.signature.pattern)),
        "place": dispatch.place, "winners": winners,
    }  # fmt: skip


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plain(interval: Interval | None) -> dict[str, float] | None:
    return {"low": interval.low, "mid": interval.mid, "high": interval.high} if interval else None


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder. Raises :class:`FolderError`."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version = found["format"]
        if version == _FORMAT:
            for part in found["parts"]:
                assert {"paths", "name", "call", "place", "winners"} <= part.keys()
                assert all(
                    {"file", "problem", "library", "hashes", "winner", "torch"} <= one.keys() for one in part["winners"]
                )
            _ = found["speedup"]
    except OSError as error:
        raise FolderError(f"{folder}: no optimised module: {MANIFEST}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise FolderError(f"{folder}: {MANIFEST} is none of an optimised module: save it again") from error
    if version != _FORMAT:
        raise FolderError(
            f"{folder}: another version of kgen wrote it ({found.get('kgen')}, format {version}): save it again"
        )
    return dict(found)


def _checked(folder: Path, manifest: dict[str, Any]) -> dict[str, str]:
    """The texts of the files, after all hashes were checked. Raises :class:`FolderError`."""
    texts = {}
    for entry in (one for part in manifest["parts"] for one in part["winners"]):
        named = {entry["file"], entry["problem"], *([entry["library"]] if entry["library"] else [])}
        if named != entry["hashes"].keys() or any(Path(name).name != name for name in named):
            raise FolderError(f"{folder}: {MANIFEST} names files without hashes, or outside of the folder")
        for name, known in entry["hashes"].items():
            try:
                data = (folder / name).read_bytes()
            except OSError as error:
                raise FolderError(f"{folder}: {name} cannot be read: {error.strerror or error}") from error
            if hashlib.sha256(data).hexdigest() != known:
                raise FolderError(f"{folder}: {name} is not the file that was saved (its hash differs)")
            if name != entry["library"]:
                texts[name] = data.decode()
    return texts


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
