"""A description of one node. It runs there by value, and imports nothing of kgen, which the node may lack."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """Versions, devices and room on this machine; ``None`` for a part that is missing. Changes ``PATH``."""
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    gpu = said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    name, _, driver = (gpu[0] if gpu else "").rpartition(", ")
    model = re.search(r"model name\s*: (.*)", text("/proc/cpuinfo"))
    flags = re.search(r"flags\s*: (.*)", text("/proc/cpuinfo"))
    kgen = util.find_spec("kgen")
    return {
        "host": socket.gethostname(),
        "kgen": kgen and kgen.origin and version(Path(kgen.origin).parent),
        "python": platform.python_version(),
        "torch": installed("torch"),
        "ninja": shutil.which("ninja"),
        "compiler": said(os.environ.get("CXX") or "c++", "--version").partition("\n")[0] or None,
        "nvcc": (re.findall(r"V[\d.]+", said("nvcc", "--version")) or [None])[0],
        "gpu": name or None,
        "driver": driver or None,
        "cpu": model[1] if model else platform.machine(),
        "instructions": hashlib.sha256((flags[1] if flags else "").encode()).hexdigest()[:8],
        "cores": len(os.sched_getaffinity(0)),
        "folder": str(folder()),
        "free": free(folder()),
    }


def folder() -> Path:
    """Where kgen writes to on a node: ``KGEN_HOME`` as the node has it, or a folder for temporary files."""
    return Path(os.environ.get("KGEN_HOME") or Path(tempfile.gettempdir(), f"kgen-{os.getuid()}", "home")).resolve()


def free(place: Path) -> int:
    """Bytes that are free at ``place``, which may not exist yet."""
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def version(package: Path) -> str:
    """The version of the kgen in a folder, with a hash of its text."""
    named = re.search(r'__version__ = "(.*)"', text(str(package / "protocol" / "__init__.py")))
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{named[1] if named else '?'} ({digest.hexdigest()[:8]})"


def installed(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def said(*command: str) -> str:
    """The output of a command; nothing where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def text(file: str) -> str:
    """The text of a file; nothing where there is none."""
    try:
        return Path(file).read_text(errors="replace")
    except OSError:
        return ""
