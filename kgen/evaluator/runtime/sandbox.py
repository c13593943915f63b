"""The sandbox, made of what the Linux kernel offers: namespaces, a user, limits, capabilities, Landlock.

A process confines itself before it runs foreign code. Parts that the system does not allow are returned by name, so
that the parent can say so once.
"""

import ctypes
import glob
import os
import resource
import shutil
import signal
import stat
import struct
import sys
from collections import defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Sequence

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP = 1, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND = 0x4000, 1 << 18, 2, 4, 8, 0x1000
_SYS_MOUNT_SETATTR, _MOUNT_READ_ONLY, _AT_HERE, _AT_RECURSIVE = 442, 1, -100, 0x8000
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
#: Rights that change the file system: writing, removing, making; version 2 adds renaming, version 3 truncating.
_LANDLOCK_WRITE = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
_LANDLOCK_LATER = {2: 1 << 13, 3: 1 << 14}
_LANDLOCK_FILE_RIGHTS = 1 << 1 | 1 << 14  # rights that a file can have
#: Users without a name: systemd reserves these numbers.
_NAMELESS_USERS = range(61184, 65520)
_FILES_PER_FOLDER = 1 << 16
#: Since this version the kernel counts the processes of each user namespace apart.
_COUNTS_BY_NAMESPACE = (5, 14)


@dataclass(frozen=True)
class Confinement:
    """Rights of a candidate's process, or of the compilers that build it. The process sees each folder in ``writable``
    as a private copy in memory of at most ``folder_bytes``, or the folder itself if that is ``None``. It becomes
    ``user`` (``None``: no change). ``mounts`` says whether it has its own mount namespace. Limits are in bytes and in
    processes."""

    writable: Sequence[Path]
    devices: Sequence[Path]
    user: int | None
    mounts: bool
    address_space: int | None
    file_bytes: int
    folder_bytes: int | None
    processes: int


def foreign(options: Mapping[str, Any], *, address_space: int | None, file_bytes: int) -> Confinement:
    """The rights of a process that runs foreign code, from its options."""
    return Confinement(
        writable=[Path(folder) for folder in options["writable"]],
        devices=[Path(path) for path in ("/dev/null", "/dev/zero", *glob.glob("/dev/nvidia*"))],
        user=options["user"] if options["own_user"] else None,
        mounts=options["mounts"],
        address_space=address_space,
        file_bytes=file_bytes,
        folder_bytes=options["scratch_bytes"],
        processes=options["processes"],
    )


def hide(folders: Iterable[str], shown: Iterable[str]) -> None:
    """Cover folders in this mount namespace; of what is below them, only ``shown`` and Python's own files are seen.
    Raises ``OSError`` where that is not allowed."""
    wanted = [*map(Path, shown), *_needed()]
    for folder in map(Path, folders):
        _cover(folder.resolve(), [path for path in wanted if path.exists()])


def confine(to: Confinement) -> list[str]:
    """Confine this process. Returns the names of the parts that the system does not allow."""
    user = to.user if to.user is not None and _can_live(to.user, to) else None
    return apply(
        {
            "being the first to end when memory runs out": end_first,
            "read-only mounts": lambda: read_only(to),
            "a scratch folder of limited size": lambda: own_folders(to, os.geteuid() if user is None else user),
            "an unprivileged user": lambda: become(user, _groups(to.devices)),
            "resource limits": lambda: limit(to.address_space, to.file_bytes),
            "a limit on processes": lambda: limit_processes(to.processes),
            "dropping capabilities": drop_capabilities,
            "Landlock": lambda: write_only_below([*to.writable, *(path for path in to.devices if path.exists())]),
        }
    )


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
    """Leave the parent's namespaces; the next child is in new ones. Returns those that the system does not allow."""
    wanted = {"PID namespace": _CLONE_NEWPID, "mount namespace": _CLONE_NEWNS}
    if network:
        wanted |= {"IPC namespace": _CLONE_NEWIPC, "network namespace": _CLONE_NEWNET}
    if os.geteuid() != 0 and apply({"user namespace": _own_user_namespace}):
        return [*wanted]
    return apply({name: partial(_unshare, flag) for name, flag in wanted.items()})


def _unshare(flag: int) -> None:
    _check(_libc.unshare(flag), "unshare")


def _own_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _unshare(_CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def own_proc() -> None:
    """Mount a /proc that shows this PID namespace only. Raises ``OSError`` where that is not allowed."""
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _mount(source: str, target: str | Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, options.encode() or None)
    _check(result, f"mount {target}")


def _set_read_only(path: Path, wanted: bool, flags: int) -> None:
    attributes = struct.pack("4Q", *((_MOUNT_READ_ONLY, 0) if wanted else (0, _MOUNT_READ_ONLY)), 0, 0)
    result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_HERE, os.fsencode(path), flags, attributes, len(attributes))
    _check(result, f"mount_setattr {path}")


def read_only(to: Confinement) -> None:
    """Make every mount read-only except the writable folders without a copy. Unlike Landlock this holds for threads
    that run already. Raises ``OSError`` without a mount namespace, or on old kernels."""
    if not to.mounts:
        raise OSError("there is no mount namespace to change mounts in")
    kept = to.writable if to.folder_bytes is None else []
    for folder in kept:
        _mount(str(folder), folder, flags=_MS_BIND)
    _set_read_only(Path("/"), True, _AT_RECURSIVE)
    for folder in kept:
        _set_read_only(folder, False, 0)


def own_folders(to: Confinement, owner: int) -> None:
    """Cover each writable folder by a copy in memory that belongs to ``owner``: it cannot fill a disk. Without
    ``folder_bytes``, ``owner`` gets the folders themselves. Raises ``OSError`` where they cannot be covered."""
    for folder in to.writable:
        if to.folder_bytes is not None and to.mounts:
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                options = f"size={to.folder_bytes},nr_inodes={_FILES_PER_FOLDER},uid={owner},gid={owner}"
                _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
                shutil.copytree(f"/proc/self/fd/{below}", folder, dirs_exist_ok=True)
            finally:
                os.close(below)
            folder.chmod(0o700)  # copying gave it the mode of what it covers
        if owner != os.geteuid():
            for path in (folder, *folder.rglob("*")):
                os.chown(path, owner, owner, follow_symlinks=False)
    os.chdir(os.getcwd())  # into the copy
    if to.folder_bytes is not None and not to.mounts:
        raise OSError("there is no mount namespace to cover a folder in")


def nameless_user(slot: int) -> int | None:
    """A user without a name for the process in ``slot``; ``None`` unless this process is root."""
    return _NAMELESS_USERS[slot % len(_NAMELESS_USERS)] if os.geteuid() == 0 else None


def become(user: int | None, groups: Sequence[int]) -> None:
    """Become ``user`` for good. Raises ``OSError`` for root without one."""
    if user is None and os.geteuid() == 0:
        raise OSError("no other user can read what a candidate needs")
    if user is not None:
        os.setgroups(groups)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        die_with_parent()  # the kernel forgets this when the user changes


def _groups(devices: Iterable[Path]) -> list[int]:
    """The groups that may open ``devices`` that are closed to others."""
    modes = [os.stat(path) for path in devices if path.exists()]
    return sorted({mode.st_gid for mode in modes if mode.st_mode & 0o006 != 0o006 and mode.st_mode & 0o060 == 0o060})


def _can_live(user: int, to: Confinement) -> bool:
    """Whether ``user`` can read Python and torch once the folders on the way are open."""
    libraries = [Path(module.__file__) for name in ("os", "torch") if (module := sys.modules.get(name))]
    try:
        if to.mounts:
            open_way([*_needed(), *to.writable])
        os.seteuid(user)
        try:
            for path in (Path(__file__), *libraries):
                path.open("rb").close()
        finally:
            os.seteuid(0)
    except OSError:
        return False
    return True


def _needed() -> list[Path]:
    """The places of Python, its packages and the compilers."""
    names = ("c++", "g++", "nvcc", *filter(None, map(os.environ.get, ("CXX", "CC", "CUDAHOSTCXX"))))
    found = [Path(path) for name in names if (path := shutil.which(name))]
    # A compiler's files lie beside its folder; a script has no such folder.
    tools = [*found, *(path.resolve().parent.parent for path in found)]
    folders = [
        *sys.path,
        sys.prefix,
        sys.base_prefix,
        os.environ.get("CUDA_HOME", ""),
        *os.environ.get("PATH", "").split(os.pathsep),
    ]
    return [path for path in (*map(Path, filter(None, folders)), *tools) if path.exists()]


def open_way(paths: Iterable[Path]) -> None:
    """Let every user reach ``paths``. A closed folder on the way, such as root's home, is covered by one that holds
    these paths alone. It is seen in this mount namespace only."""
    wanted = {Path(os.path.abspath(path)) for path in paths}
    wanted |= {path.resolve() for path in wanted}
    covered: set[Path] = set()
    while closed := next(filter(None, map(_closed, wanted)), None):
        if closed in covered:
            raise OSError(f"{closed} stays closed")
        covered.add(closed)
        _cover(closed, wanted)


def _closed(path: Path) -> Path | None:
    """The first closed folder on the way to ``path``."""
    way = reversed(path.parents)
    return next((folder.resolve() for folder in way if not folder.stat().st_mode & stat.S_IXOTH), None)


def _cover(closed: Path, wanted: Iterable[Path]) -> None:
    """Mount an empty folder over ``closed``, and into it the paths of ``wanted`` that were below."""
    kept: dict[Path, int] = {}
    with ExitStack() as opened:
        for path in sorted(wanted):
            inside = next((path.relative_to(folder) for folder in path.parents if folder.resolve() == closed), None)
            if inside is not None and not any(inside.is_relative_to(other) for other in kept):
                kept[inside] = os.open(path, os.O_PATH | os.O_CLOEXEC)
                opened.callback(os.close, kept[inside])
        _mount("tmpfs", closed, "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=0755,nr_inodes={_FILES_PER_FOLDER}")
        for inside, fd in kept.items():
            target = closed / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                target.mkdir()
            else:
                target.touch()
            _mount(f"/proc/self/fd/{fd}", target, flags=_MS_BIND | _MS_REC)


def limit(address_space: int | None, file_bytes: int) -> None:
    """Limit this process and its children: bytes of address space, bytes of a file, no core files."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    if address_space is not None:
        _limit(resource.RLIMIT_AS, _memory("VmSize") + address_space)


def limit_memory(more: int) -> None:
    """Let this process and each child have up to ``more`` bytes of private memory beyond its present memory."""
    _limit(resource.RLIMIT_DATA, _memory("VmData") + more)


def limit_processes(more: int) -> None:
    """Let this process's user have up to ``more`` processes and threads beyond its present ones. Raises ``OSError``
    where the kernel does not count them (root), or counts other sessions of the user too."""
    if os.geteuid() == 0:
        raise OSError("the kernel does not count root's processes")
    own_user = os.geteuid() in _NAMELESS_USERS
    if not own_user and tuple(int(part) for part in os.uname().release.split(".")[:2]) < _COUNTS_BY_NAMESPACE:
        raise OSError("this kernel counts the processes of the user's other sessions")
    _limit(resource.RLIMIT_NPROC, len(os.listdir("/proc/self/task")) + more)


def tune_allocations(option: int, value: int) -> None:
    """Set an option of the C library's ``malloc``, if it has such options."""
    if (mallopt := getattr(_libc, "mallopt", None)) is not None:
        mallopt(option, value)


def end_first() -> None:
    """Have the kernel end this process and its children first when memory runs out."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _memory(kind: str) -> int:
    """Bytes of this process's memory, by a name in /proc/self/status."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[kind].split()[0]) << 10


def no_new_privileges() -> None:
    """Let no program that this process runs gain rights."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability for good: root becomes an ordinary user that cannot inspect other processes."""
    no_new_privileges()
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    _check(_libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24)), "capset")


def write_only_below(paths: Iterable[Path]) -> None:
    """Landlock: from now on this process changes files below ``paths`` only. Raises ``OSError`` without Landlock."""
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    _check(version, "Landlock")
    rights = _LANDLOCK_WRITE | sum(right for since, right in _LANDLOCK_LATER.items() if version >= since)
    ruleset = _libc.syscall(_LANDLOCK_CREATE, struct.pack("Q", rights), 8, 0)
    _check(ruleset, "Landlock")
    try:
        for path in paths:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = struct.pack("=Qi", rights if path.is_dir() else rights & _LANDLOCK_FILE_RIGHTS, fd)
            added = _libc.syscall(_LANDLOCK_ADD, ruleset, 1, allowed, 0)
            os.close(fd)
            _check(added, "Landlock")
        no_new_privileges()
        _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    finally:
        os.close(ruleset)


def apply(steps: dict[str, Callable[[], None]]) -> list[str]:
    """Take each step. Returns the names of those that the system does not allow."""
    missing = []
    for name, step in steps.items():
        try:
            step()
        except OSError:
            missing.append(name)
    return missing


def descendants(pid: int) -> list[int]:
    """The processes below ``pid``, nearest first."""
    below = defaultdict[int, list[int]](list)  # by parent
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has just ended
            below[int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])].append(int(entry))
    found = list(below[pid])
    for child in found:  # which grows meanwhile
        found += below[child]
    return found
