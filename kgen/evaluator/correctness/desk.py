"""The oracle's process: answers the parent's requests one by one."""

import platform
import timeit
import traceback
from dataclasses import asdict
from typing import Any, TypeAlias

import torch

from kgen.devices.kinds import kind_of, torch_device
from kgen.devices.machine import resolve_device
from kgen.devices.runtime import runtime
from kgen.errors import DeviceError, KgenError, ProblemError
from kgen.evaluator.correctness.batches import OfBatchError
from kgen.evaluator.correctness.cases import few_leaves
from kgen.evaluator.correctness.distributions import seed_of
from kgen.evaluator.correctness.health import health
from kgen.evaluator.correctness.oracle import CACHED_BYTES, NO_MEMORY, Oracle
from kgen.evaluator.correctness.reference import set_flags
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.arena import Arena, Node, nodes, tensors
from kgen.evaluator.runtime.channel import Channel
from kgen.problems.problem import Problem, load, without_values

_FILE_BYTES = 1 << 40  #: bytes of a file; arenas are files in memory
_COPY_BYTES = 64 << 20
#: Bytes; a cold cache on the CPU. A server's last-level cache is larger than any problem, and flushing it takes longer
#: than a call.
_CPU_CACHE_BYTES = 32 << 20
#: Options of mallopt: no block is mapped apart, and none is given back. Fresh pages cost more than arithmetic.
_KEEPS_FREED_MEMORY = {-4: 0, -1: 0x7FFFFFFF}

Reply: TypeAlias = tuple[dict[str, Any], list[int]]  #: an answer, and descriptors beside it


def _tensor_bytes(problem: Problem) -> int:
    """Bytes of the problem's inputs, weights, and outputs as large as the inputs, found on the meta device. Its forward
    there would load torch's compiler. 0 where that fails: the problem itself is constructed next, and says why."""
    try:
        loaded = load(problem)
        model, inputs = without_values(loaded.model), without_values(loaded.inputs)
        state = [*model.parameters(), *model.buffers()]
        return sum(x.nbytes for x in state) + 2 * sum(x.nbytes for x in tensors([inputs]))
    except Exception:
        return 0


def _cpu_copy_rate() -> float:
    """The rate of a large copy: gigabytes (1e9) read and written per second, the best of five."""
    a, b = torch.ones(_COPY_BYTES // 4), torch.ones(_COPY_BYTES // 4)
    return 2 * _COPY_BYTES / 1e9 / min(timeit.repeat(lambda: b.copy_(a), repeat=5, number=1))


class Desk:
    """Answers the parent's requests, each with a method. Those before ``open`` need no problem."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._device = options["device"]
        self._problem = Problem(**options["problem"])
        self._oracle: Oracle

    def reply(self, request: dict[str, Any]) -> Reply:
        do = request.pop("do")
        try:
            return getattr(self, do)(**request)
        except (Exception, SystemExit) as error:  # the problem's code may call exit()
            traceback.print_exc()
            known, name = isinstance(error, KgenError), type(error).__name__
            text = str(error) if known else f"{name}: {' '.join(str(error).split())[:300]}"
            fault = do == "open" and not known and not isinstance(error, OfBatchError)
            return {
                "error": f"{self._problem.path}: the reference raised {text}" if fault else text,
                "problem": fault or isinstance(error, ProblemError),
                "device": isinstance(error, DeviceError),
                "memory": isinstance(error, NO_MEMORY),
                "of_batch": isinstance(error, OfBatchError),
            }, []

    def key(self) -> Reply:
        """The name of the device's lock; nothing runs on the device to find it out. With several GPUs, ``alone`` is the
        environment in which a process sees this GPU alone. A process that starts two GPUs takes twice as long."""
        key, alone = runtime(resolve_device(self._device)).alone(self._device)
        return {"key": key, "alone": alone}, []

    def about(self) -> Reply:
        """Versions, the device's limits, and the rate of a large copy in gigabytes (1e9) read and written per
        second."""
        runtime(self._device).select(self._device)
        accelerator = kind_of(self._device).accelerator
        hardware = runtime(self._device).hardware(self._device)
        return {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "host": platform.node(),
            "hardware": asdict(hardware),
            "copy_rate": hardware.copy_gbytes_per_second or _cpu_copy_rate(),
            "flush_bytes": 2 * (hardware.l2_bytes if accelerator else _CPU_CACHE_BYTES),
            "least_bytes": _tensor_bytes(self._problem) if accelerator else 0,
        }, []

    def open(self) -> Reply:
        given = self._options
        self._oracle = oracle = Oracle(
            self._problem,
            self._device,
            given["accuracy"],
            given["secret"],
            given["construction"],
            shared=given["shared"],
            strict=given["strict"],
            most_rows=given["rows"],
            without=given["without"],
            seconds=given["seconds"],
            other_batches=given["other_batches"],
        )
        if not kind_of(self._device).accelerator:
            oracle.set_threads(given["threads"])
        init, init_node = Arena.holding(oracle.loaded.init_inputs())
        return {
            "mode": oracle.loaded.problem.mode,
            "accuracy": oracle.accuracy,
            "half": oracle.half,
            "cases": oracle.names(),
            "bytes": oracle.bytes,
            "output_bytes": oracle.output_bytes,
            "peak_bytes": oracle.peak_bytes,
            "rows": oracle.most_rows,
            "flags": oracle.flags,
            "products": [
                asdict(one) for one in oracle.products.listed({oracle.rows_of(d) for d in oracle.distributions})
            ],
            "layouts": oracle.layouts,
            "operators": dict(oracle.operators),
            "elementwise": sorted(oracle.elementwise),
            "load": {
                "views": oracle.views,
                "ties": oracle.ties,
                "init": init_node,
                "state": oracle.state_node,
                "unsaved": oracle.unsaved,
                "state_bytes": oracle.state_arena.size,
            },
            "prepare": {"pool": oracle.pool_node, "pool_bytes": oracle.pool_arena.size},
        }, [oracle.state_arena.fd, init.fd, oracle.pool_arena.fd]

    def inputs(self, *, case: str, mode: str, weights: str) -> Reply:
        found = self._oracle.case(case, mode, weights)
        reply = {
            "note": found.note,
            "raises": found.raises,
            "rng": found.rng,
            "change": found.distribution.weights,
            "random": self._oracle.random[mode],
        }
        if found.note and not found.raises:
            return reply, []
        assert found.arena is not None
        sizes = [node["size"] for node in nodes(found.outputs) if node["kind"] == "tensor"]
        return reply | {
            "inputs": found.node,
            "bytes": found.arena.size,
            "outputs": found.outputs,
            "sizes": sizes,
            "end": found.end,
            "stays": self._oracle.stays(found),
        }, [found.arena.fd]

    def output(self, *, subject: str, bytes: int) -> Reply:
        memory = self._oracle.outputs.memory(subject, bytes)
        return {"bytes": memory.size}, [memory.fd]

    def judge(
        self,
        *,
        subject: str,
        outputs: Node,
        shift: int,
        case: str,
        mode: str,
        weights: str,
        key: int | None = None,
        count: int = 0,
        own_numbers: bool = False,
    ) -> Reply:
        values = self._oracle.outputs.read(subject, outputs, shift)
        found = self._oracle.case(case, mode, weights, judged=True)
        if count:
            return self._oracle.runs.add(subject, found, values, count), []
        if key is not None:
            return {"rows": self._oracle.judge_timed(key, found, values, own_numbers=own_numbers)}, []
        rows = self._oracle.judge(found, values, own_numbers=own_numbers)
        return {"rows": rows, "unclear": self._oracle.fresh.unclear(subject, found, values, rows)}, []

    def draws(self, *, subject: str, case: str, mode: str, weights: str) -> Reply:
        found = self._oracle.case(case, mode, weights, judged=True)
        draws, memory = self._oracle.fresh.of(found), self._oracle.fresh.memory(subject, found)
        leaves_of, step = few_leaves(found, draws.numbers)
        return {
            "sets": draws.node,
            "bytes": draws.arena.size,
            "keys": draws.keys,
            "rngs": [*map(seed_of, draws.keys)],
            "numbers": draws.numbers,
            "outputs": leaves_of,
            "step": step,
            "output_bytes": memory.size,
            "sizes": [leaf["size"] for leaf in leaves_of],
        }, [draws.arena.fd, memory.fd]

    def judge_draws(self, *, subject: str, case: str, mode: str, weights: str, count: int) -> Reply:
        rows, more = self._oracle.fresh.judge(subject, self._oracle.case(case, mode, weights, judged=True), count)
        return {"rows": rows, "more": more}, []

    def forget(self, *, subject: str) -> Reply:
        for kept in (self._oracle.outputs, self._oracle.fresh, self._oracle.runs):
            kept.forget(subject)
        return {}, []

    def health(self) -> Reply:
        return {"passed": health(self._oracle)}, []


def main(channel: Channel, options: dict[str, Any]) -> None:
    """The oracle's process: answer requests until the parent closes the channel."""
    sandbox.limit(None, _FILE_BYTES)
    if options.get("sandboxed"):
        if kind_of(options["device"]).accelerator:
            torch.ones(1, device=torch_device(resolve_device(options["device"])))  # CUDA starts before limits are set
        sandbox.confine(sandbox.foreign(options, address_space=None, file_bytes=_FILE_BYTES))
    for option, value in _KEEPS_FREED_MEMORY.items():
        sandbox.tune_allocations(option, value)
    torch.set_num_threads(options["threads"])
    set_flags(options["accuracy"])
    desk = Desk(options)
    while True:
        answer = desk.reply(channel.receive()[0])
        if "error" not in answer[0]:  # the device may take no more work then
            runtime(options["device"]).free(
                CACHED_BYTES
            )  # before the answer: freeing would slow the timed call that may follow it
        channel.send(*answer)
