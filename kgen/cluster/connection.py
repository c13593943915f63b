"""The connection to a Ray cluster: one that runs, or one of several nodes on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Iterator

import ray
import ray._private.worker
from ray.cluster_utils import Cluster

from kgen.errors import InputError

PACKAGE = Path(__file__).resolve().parents[1]  #: kgen itself, as it travels to nodes that lack it
_CONNECT_SECONDS, _ANSWER_SECONDS = 3.0, 6.0  # of the head of a cluster
_STORE_BYTES = 128 << 20  # for objects of each local node: libraries are small
_DIRECT_BYTES = (
    1 << 20
)  # of an object; smaller ones, such as libraries for the CPU, go from process to process without the store
#: Of a local cluster. A node that is killed refuses connections at once: three in a row are enough, where Ray's default
#: takes 20 s. Workers start when something runs on them: most of those that Ray starts ahead would stay idle. They stay
#: for the next build: each takes 0.8 core-seconds to start, and at Ray's default all but one a core end after a second.
#: They run as urgently as the driver: at Ray's default of 15, other work on the machine leaves them next to no time.
_SYSTEM = {
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
    "prestart_worker_first_driver": False,
    "idle_worker_killing_time_threshold_ms": 60_000,
    "worker_niceness": 0,
    "max_direct_call_object_size": _DIRECT_BYTES,
}
#: Asks the head for the cluster's id, in a process that can be ended: Ray itself asks for minutes.
_ASK = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"


@contextlib.contextmanager
def connected(asked: str) -> Iterator[str]:
    """Connect to the cluster ``asked`` (``auto``, ``HOST:PORT`` or ``local:N``), and yield its ``HOST:PORT``.

    Leaving disconnects, and ends a local cluster. Raises :class:`InputError` where no cluster answers.
    """
    with contextlib.ExitStack() as stack:
        if local := re.fullmatch(r"local:([1-9]\d*)", asked):
            address = stack.enter_context(_local(int(local[1]))).address
        else:
            address = _checked(asked)
        connect(address)
        stack.callback(ray.shutdown)
        yield address


def connect(address: str, *, with_code: bool = False) -> None:
    """Connect this process to the cluster, anew if it is connected. ``with_code`` sends kgen to all nodes."""
    ray.shutdown()
    # Ray prints the tail of a dead node's log, to stdout.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    code = {"py_modules": [str(PACKAGE)], "excludes": ["__pycache__"]} if with_code else {}
    try:
        with _own_signals():
            ray.init(
                address=address, runtime_env=code, log_to_driver=False, configure_logging=False, include_dashboard=False
            )
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:
        raise InputError(f"--cluster {address}: {' '.join(str(error).split())[:400]}") from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the handler of SIGTERM, which ends kgen like Ctrl-C. Ray sets one of its own."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _checked(asked: str) -> str:
    """The ``HOST:PORT`` of a cluster whose head answers."""
    address = _running() if asked == "auto" else asked
    found = re.fullmatch(r"([^:/\s]+):(\d{1,5})", address)
    if not found or found[1] == "local":
        raise InputError(f"--cluster {asked}: say auto, HOST:PORT or local:N")
    remedy = "start one with `ray start --head`, or name the address that it printed"
    try:
        socket.create_connection((found[1], int(found[2])), _CONNECT_SECONDS).close()
        subprocess.run([sys.executable, "-c", _ASK, address], capture_output=True, timeout=_ANSWER_SECONDS, check=True)
    except (OSError, OverflowError) as error:
        raise InputError(f"--cluster {asked}: nothing answers at {address} ({error}); {remedy}") from error
    except subprocess.SubprocessError as error:
        raise InputError(f"--cluster {asked}: no Ray cluster answers at {address}; {remedy}") from error
    return address


def _running() -> str:
    """The address of the cluster that this machine is a node of."""
    file = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")
    named = os.environ.get("RAY_ADDRESS", "")
    with contextlib.suppress(OSError):
        named = named or file.read_text().strip()
    if not named:
        raise InputError("--cluster auto: this machine is a node of no Ray cluster; start one with `ray start`")
    return named


@contextlib.contextmanager
def _local(nodes: int) -> Iterator[Cluster]:
    """A cluster of so many nodes, each a process of this machine, beside a head without resources."""
    folder = tempfile.mkdtemp(prefix="kgen-ray-")  # Ray's sockets need a short path
    cluster = Cluster()
    try:
        head: dict[str, Any] = {"num_cpus": 0, "node_name": "head", "temp_dir": folder}
        with _own_signals(), _address_kept_in(folder):
            cluster.add_node(
                **head,
                include_dashboard=False,
                no_monitor=True,
                include_log_monitor=False,  # no driver shows what is logged
                object_store_memory=_STORE_BYTES,
                _system_config=_SYSTEM,
            )
            for number in range(nodes):
                add_local_node(cluster, f"local-{number}", nodes)
        yield cluster
    finally:
        ray.shutdown()
        with _address_kept_in(folder):
            cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _address_kept_in(folder: str) -> Iterator[None]:
    """Let Ray note the address of a new cluster in the folder, and not where ``auto`` looks for the machine's own."""
    Path(folder, "ray").mkdir(exist_ok=True)
    before = os.environ.get("RAY_TMPDIR")
    os.environ["RAY_TMPDIR"] = folder
    try:
        yield
    finally:
        os.environ.pop("RAY_TMPDIR")
        os.environ.update({} if before is None else {"RAY_TMPDIR": before})


def add_local_node(cluster: Cluster, name: str, nodes: int) -> Any:
    """Add one of so many nodes to a local cluster, with its part of the cores and of the memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // nodes
    cores = max(1, len(os.sched_getaffinity(0)) // nodes)
    return cluster.add_node(wait=False, num_cpus=cores, memory=memory, node_name=name, object_store_memory=_STORE_BYTES)
