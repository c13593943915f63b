"""Checks of this machine: one function for each part that kgen uses, each with its remedy."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from kgen.devices.kinds import KINDS
from kgen.devices.machine import Check, cxx
from kgen.errors import KgenError
from kgen.paths import db_url, home

if TYPE_CHECKING:
    from kgen.cluster.fleet import Node


@dataclass(frozen=True)
class Extra:
    """An optional part of kgen: its name in ``pip install 'kgen[name]'``, its package, and its use."""

    name: str
    package: str
    use: str


EXTRAS = (
    Extra("optuna", "optuna", "for `kgen sweep --strategy tpe`"),
    Extra("browse", "datasette", "for `kgen browse`"),
    Extra("ray", "ray", "for `kgen sweep --cluster`"),
    Extra("serve", "starlette", "for `kgen serve`"),
    Extra("agent", "openai", "to ask models in `kgen agent`"),
    Extra("postgresql", "psycopg", "for databases on a PostgreSQL server"),
)


def run(db: str | None = None) -> list[Check]:
    """All checks, in the order in which a sweep would meet the parts; the extras come last."""
    checks: tuple[Callable[[], Check], ...] = (
        check_python,
        check_torch,
        check_ninja,
        check_host_compiler,
        check_cuda_device,
        check_nvcc,
        check_isolation,
        check_home,
        lambda: check_database(db),
    )
    return [*(check() for check in checks), *map(check_extra, EXTRAS)]


def run_on(cluster: str) -> list[Check]:
    """One check for each node of a Ray cluster. They are needed where no node can run a sweep."""
    from kgen.cluster.connection import connected
    from kgen.cluster.fleet import kinds, survey

    with connected(cluster):
        nodes = survey()
    none_serves = not kinds(nodes)
    return [_check_node(node, none_serves) for node in nodes]


def _check_node(node: Node, needed: bool) -> Check:
    parts = [f"{node.gpus:g} GPUs"] if node.gpus else []
    parts += [f"{node.cpus:g} CPUs"] if node.cpus else []
    if not parts:
        return Check(node.name, True, False, "offers no CPUs and no GPUs: takes no part")
    facts = node.facts or {}
    parts += [str(facts[name]) for name in ("gpu" if node.gpus else "cpu", "compiler") if facts.get(name)]
    parts += [f"{name} {facts[name]}" for name in ("torch", "kgen", "nvcc") if facts.get(name)]
    lacks = node.lacks(next(name for name in KINDS if node.devices(name)))
    return Check(node.name, not lacks, needed, ", ".join(parts), "; ".join(lacks))


def check_python() -> Check:
    """Python itself."""
    remedy = "install Python 3.11 or newer"
    return Check(
        "python", sys.version_info >= (3, 11), True, f"{platform.python_version()} at {sys.executable}", remedy
    )


def check_torch() -> Check:
    """PyTorch: the reference, and the library that candidates run in."""
    return _check_package("torch", "pip install torch")


def check_ninja() -> Check:
    """Ninja: ``load_inline`` builds candidates with it."""
    return _check_package("ninja", "pip install ninja")


def check_host_compiler() -> Check:
    """The C++ compiler of candidates."""
    name = cxx()
    path = shutil.which(shlex.split(name)[0])
    remedy = "install one (Debian, Ubuntu: apt install g++), or set CXX"
    return Check("C++ compiler", path is not None, True, _version(path) if path else f"no {name}", remedy)


def check_cuda_device() -> Check:
    """A GPU that PyTorch can use. Without one, sweeps run on the CPU."""
    try:
        import torch
    except ImportError:
        return Check("CUDA device", False, False, "unknown without torch", "pip install torch")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Check("CUDA device", True, False, ", ".join(names))
    if torch.version.cuda is None:
        return Check("CUDA device", False, False, "this torch is built for the CPU", "install a CUDA build of torch")
    return Check("CUDA device", False, False, "torch sees none", "check the driver with nvidia-smi")


def check_nvcc() -> Check:
    """The CUDA compiler."""
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    path = shutil.which("nvcc") or next(
        (found for folder in folders if folder and (found := shutil.which("nvcc", path=str(Path(folder, "bin"))))), None
    )
    remedy = "needed for CUDA only: install the CUDA toolkit, or set CUDA_HOME"
    return Check("nvcc", path is not None, False, _version(path) if path else "not found", remedy)


def check_isolation() -> Check:
    """Linux namespaces, which isolate the process of a candidate from its evaluator."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true"]
    remedy = "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1); without, candidates are less isolated"
    if not shutil.which("unshare"):
        return Check("isolation", False, False, "no unshare", "install util-linux")
    ok = subprocess.run(command, capture_output=True).returncode == 0
    return Check("isolation", ok, False, "namespaces work" if ok else "namespaces are not allowed", remedy)


def check_home() -> Check:
    """The folder that kgen writes to."""
    folder = home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        remedy = "make it writable and free some space, or set KGEN_HOME to another folder"
        return Check("runs", False, True, f"{folder}: {error.strerror or error}", remedy)
    free = shutil.disk_usage(folder).free / (1 << 30)
    return Check("runs", True, True, f"{folder.resolve()} is writable, {free:.0f} GB free")


def check_database(url: str | None = None) -> Check:
    """The database, if it exists."""
    from kgen.errors import NotFoundError
    from kgen.store import Database
    from kgen.store.connections import shown

    try:
        with Database.open(url, create=False) as database:
            return Check("database", True, True, database.name)
    except NotFoundError:
        return Check("database", True, True, f"{shown(db_url(url))}: none yet, the first sweep makes it")
    except KgenError as error:
        return Check("database", False, True, str(error), "name another with --db or KGEN_DB")


def check_extra(extra: Extra) -> Check:
    """An optional part of kgen."""
    name, remedy = f"kgen[{extra.name}]", f"pip install 'kgen[{extra.name}]'"
    try:
        return Check(name, True, False, f"{extra.package} {metadata.version(extra.package)}, {extra.use}", remedy)
    except metadata.PackageNotFoundError:
        return Check(name, False, False, f"not installed; {extra.use}", remedy)


def _check_package(name: str, remedy: str) -> Check:
    try:
        return Check(name, True, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name, False, True, "not installed", remedy)


def _version(path: str) -> str:
    """The version line of ``path --version``, and the path. nvcc prints its release on a later line."""
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    line = next((line for line in answer if "release" in line), answer[0] if answer else "no version")
    return f"{line.strip()} at {path}"
