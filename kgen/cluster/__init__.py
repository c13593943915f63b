"""Sweeps on a Ray cluster: evaluators in actors, builds as tasks, one driver that searches and writes to the store.

    connection   finds or starts a cluster, and connects to it
    probe        describes one node; it runs there, where kgen may be missing
    fleet        which nodes serve a sweep: equal ones, with everything that it needs
    host         the actor that holds an evaluator, and the task that builds
    devices      the driver's side: devices and a builder for :class:`kgen.evaluator.pool.DevicePool`
    suite        problems of a suite beside each other, each in a process of the driver

Queues, heartbeats, placement and retries of tasks are Ray's. Nothing outside imports this package, except functions
that run where ``--cluster`` is given.
"""

import logging
import os

from kgen.errors import ExtraError

# Otherwise Ray warns that it hides GPUs from processes that reserve none. It counts when Ray is first imported.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
try:
    import ray as ray
except ImportError as error:
    raise ExtraError("--cluster needs Ray: pip install 'kgen[ray]'") from error

# Ray tells of addresses and dead nodes; kgen says what counts in one line.
logging.getLogger("ray").setLevel(logging.CRITICAL)
