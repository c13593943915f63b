"""Walls around a process, from the Linux kernel: namespaces, limits, capabilities, Landlock.

Each wall is put up by the process that it is to hold, before it runs anything foreign. A wall that the system does
not allow is named in the result, so that the parent can say so once; it is never silently left out.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from pathlib import Path
from typing import Callable, Iterable

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = (
    0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x4000, 1 << 18, 2, 4, 8
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
#: Rights that change the file system, by the Landlock version that knows them: writing, removing, making; then
#: renaming between folders; then truncating.
_LANDLOCK_WRITE = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
_LANDLOCK_LATER = {2: 1 << 13, 3: 1 << 14}
_LANDLOCK_FILE_RIGHTS = 1 << 1 | 1 << 14  # those that make sense on a file rather than a folder


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that forked it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process, so that none gets away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def new_namespaces(network: bool) -> list[str]:
    """Leave the parent's PID and mount and, where asked, its IPC and network namespaces; the next child is in the new.

    Returns the names of the namespaces that the system does not allow.
    """
    missing = []
    if os.geteuid() != 0:
        try:
            _own_user_namespace()
        except OSError:
            return ["namespaces"]
    wanted = {"PID namespace": _CLONE_NEWPID, "mount namespace": _CLONE_NEWNS}
    if network:
        wanted |= {"IPC namespace": _CLONE_NEWIPC, "network namespace": _CLONE_NEWNET}
    for name, flag in wanted.items():
        try:
            _check(_libc.unshare(flag), "unshare")
        except OSError:
            missing.append(name)
    return missing


def _own_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def own_proc() -> None:
    """Mount a /proc that shows this PID namespace only. Raises ``OSError`` where that is not allowed."""
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")
    _check(_libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None), "mount")


def limit(address_space: int | None, file_bytes: int, processes: int | None) -> None:
    """Limit this process and what it starts: bytes of address space, bytes of a file, processes; no core files."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    if address_space is not None:
        _limit(resource.RLIMIT_AS, _virtual_bytes() + address_space)
    if processes is not None:
        _limit(resource.RLIMIT_NPROC, processes)


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _virtual_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def drop_capabilities() -> None:
    """Give up every capability for good: root becomes a user like any other, who cannot look into other processes."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() != 0:
        return
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    number = _SYS_CAPSET.get(os.uname().machine)
    if number is None:
        raise OSError(f"capset is not known on {os.uname().machine}")
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.syscall(number, header, bytes(24)), "capset")


def write_only_below(folders: Iterable[Path]) -> None:
    """Landlock: from now on this process changes files below ``folders`` only. Raises ``OSError`` where unknown."""
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    _check(version, "Landlock")
    rights = _LANDLOCK_WRITE | sum(right for since, right in _LANDLOCK_LATER.items() if version >= since)
    ruleset = _libc.syscall(_LANDLOCK_CREATE, struct.pack("Q", rights), 8, 0)
    _check(ruleset, "Landlock")
    try:
        for folder in folders:
            _landlock_allow(ruleset, folder, rights)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    finally:
        os.close(ruleset)


def _landlock_allow(ruleset: int, path: Path, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        allowed = rights if path.is_dir() else rights & _LANDLOCK_FILE_RIGHTS
        _check(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", allowed, fd), 0), "Landlock")
    finally:
        os.close(fd)


def put_up(walls: dict[str, Callable[[], None]]) -> list[str]:
    """Put up each wall; the names of those that the system does not allow."""
    missing = []
    for name, build in walls.items():
        try:
            build()
        except OSError:
            missing.append(name)
    return missing


def descendants(pid: int) -> list[int]:
    """The processes below ``pid``, nearest first."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found: list[int] = []
    rest = [pid]
    while rest:
        below = parents.get(rest.pop(0), [])
        found += below
        rest += below
    return found
