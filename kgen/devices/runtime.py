"""Devices at work: the protocol that a running program asks, with an entry for each kind of :data:`kinds.KINDS`.

A program waits for a device, reads its memory, and names it, through this protocol alone. Each entry imports torch when
it is called. Timing inside of the evaluator is by the device's own driver (``kgen/evaluator/runtime``).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, Protocol, Sequence, Union

from kgen.devices.kinds import KINDS, Kind, kind_of
from kgen.errors import DeviceError

if TYPE_CHECKING:
    import torch

    from kgen.devices.hardware import Hardware

    Device = Union[str, torch.device]


class Runtime(Protocol):
    """One kind of device at work. Devices are given as torch has them: ``cuda:1``."""

    def available(self) -> bool:
        """Whether torch sees such a device."""

    def found(self, asked: str | None) -> str | None:
        """The device that is ``asked`` for, or without one the device to use where the machine has one. Opens none.

        Raises :class:`DeviceError` where the one that is asked for is missing.
        """

    def every(self) -> tuple[str, ...]:
        """The devices of this kind on the machine."""

    def hardware(self, device: str) -> Hardware:
        """The limits of the device. It may open it: call it in a child process. Raises :class:`DeviceError` where it is
        missing."""

    def arch(self, device: Device) -> str:
        """The architecture that kernels for the device are built for."""

    def place(self, device: Device) -> str:
        """The model of the device and the software under it: timings of another one do not hold."""

    def generators(self, device: Device) -> Sequence[Device]:
        """The devices, beside the CPU, whose random numbers an operator on the device draws."""

    def started(self) -> Sequence[int]:
        """The numbers of the devices, beside the CPU, that this process may have drawn random numbers on."""

    def wait(self) -> None:
        """Wait until the current device has done all that it was given."""

    def select(self, device: Device) -> None:
        """Make the device the current one."""

    def begin_peak(self, device: Device) -> int:
        """Forget the most memory that was in use. Returns the bytes in use now."""

    def peak(self, device: Device) -> int:
        """The most bytes in use since :meth:`begin_peak`."""

    def free(self, most: int) -> None:
        """Give back memory that torch keeps for later, where that is more than ``most`` bytes."""

    def alone(self, device: Device) -> tuple[str, dict[str, str]]:
        """A name of the device on this machine, and the environment in which a process sees it alone."""

    def conditions(self, name: str) -> Mapping[str, str | float]:
        """Clocks, temperature, load and throttling of the device that :meth:`alone` names so, without opening it."""

    def generator_state(self, device: Device) -> torch.Tensor:
        """The state of the device's random number generator, of those in :meth:`generators`."""

    def driver(self) -> str:
        """The version of the device's driver; empty without one."""


class Cpu:
    """The machine's own cores, which compute while torch waits; their memory is the process's."""

    def available(self) -> bool:
        return True

    def found(self, asked: str | None) -> str | None:
        return asked or "cpu"

    def every(self) -> tuple[str, ...]:
        return ("cpu",)

    def hardware(self, device: str) -> Hardware:
        from kgen.devices.hardware import cpu

        return cpu()

    def arch(self, device: Device) -> str:
        from kgen.devices.hardware import cpu

        return cpu().arch

    def place(self, device: Device) -> str:
        import torch

        from kgen.devices.hardware import cpu

        hardware = cpu()
        return f"{hardware.name} {hardware.arch} {torch.get_num_threads()}"

    def generators(self, device: Device) -> Sequence[Device]:
        return ()

    def started(self) -> Sequence[int]:
        return ()

    def wait(self) -> None:
        pass

    def select(self, device: Device) -> None:
        pass

    def begin_peak(self, device: Device) -> int:
        return 0

    def peak(self, device: Device) -> int:
        return 0

    def free(self, most: int) -> None:
        pass

    def alone(self, device: Device) -> tuple[str, dict[str, str]]:
        return "cpu", {}

    def conditions(self, name: str) -> Mapping[str, str | float]:
        from kgen.devices.conditions import of_host

        return of_host()

    def generator_state(self, device: Device) -> torch.Tensor:
        import torch

        return torch.get_rng_state()

    def driver(self) -> str:
        return ""


class Cuda:
    """NVIDIA's GPUs."""

    def available(self) -> bool:
        import torch

        return torch.cuda.is_available()

    def found(self, asked: str | None) -> str | None:
        if asked is None and not _has_driver():
            return None  # importing torch would take seconds
        # Without this variable, torch asks CUDA itself, which opens a context.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        if not self.available():
            if asked is not None:
                raise DeviceError(f"{asked}: torch sees no CUDA device here; use --device cpu")
            return None
        device = asked or "cuda"
        if int(device.partition(":")[2] or 0) >= (count := len(self.every())):
            raise DeviceError(f"{device}: CUDA devices are counted from 0, and there are only {count} here")
        return device

    def every(self) -> tuple[str, ...]:
        import torch

        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))

    def hardware(self, device: str) -> Hardware:
        from kgen.devices.hardware import gpu

        return gpu(device)

    def arch(self, device: Device) -> str:
        import torch

        major, minor = torch.cuda.get_device_capability(device)
        return f"sm_{major}{minor}"

    def place(self, device: Device) -> str:
        import torch

        return f"{torch.cuda.get_device_name(device)} {torch.cuda.get_device_capability(device)} {torch.version.cuda}"

    def generators(self, device: Device) -> Sequence[Device]:
        return (device,)

    def started(self) -> Sequence[int]:
        import torch

        return range(torch.cuda.device_count()) if torch.cuda.is_available() and torch.cuda.is_initialized() else ()

    def wait(self) -> None:
        import torch

        torch.cuda.synchronize()

    def select(self, device: Device) -> None:
        import torch

        torch.cuda.set_device(device)

    def begin_peak(self, device: Device) -> int:
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)

    def peak(self, device: Device) -> int:
        import torch

        return torch.cuda.max_memory_allocated(device)

    def free(self, most: int) -> None:
        import torch

        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > most:
            torch.cuda.empty_cache()

    def alone(self, device: Device) -> tuple[str, dict[str, str]]:
        import torch

        uuid = str(torch.cuda.get_device_properties(device).uuid)
        alone = {"CUDA_VISIBLE_DEVICES": f"GPU-{uuid.removeprefix('GPU-')}"} if torch.cuda.device_count() > 1 else {}
        return f"cuda-{uuid}", alone

    def conditions(self, name: str) -> Mapping[str, str | float]:
        from kgen.devices.conditions import of_gpu

        return of_gpu(name.removeprefix("cuda-"))

    def generator_state(self, device: Device) -> torch.Tensor:
        import torch

        return torch.cuda.get_rng_state(device)

    def driver(self) -> str:
        with suppress(OSError):
            if found := re.search(r"\s(\d+\.\d+(\.\d+)?)\s", Path("/proc/driver/nvidia/version").read_text()):
                return found.group(1)
        return ""


def _has_driver() -> bool:
    """Whether the system has a device of NVIDIA's driver, or WSL's."""
    return any(Path("/dev").glob("nvidia*")) or Path("/dev/dxg").exists()


#: By the names of their kinds.
RUNTIMES: dict[str, Runtime] = {"cpu": Cpu(), "cuda": Cuda()}


def add(kind: Kind, runtime: Runtime) -> None:
    """Take a kind of device from outside: its record, and its entry here."""
    KINDS[kind.name], RUNTIMES[kind.name] = kind, runtime


def runtime(device: Device) -> Runtime:
    """The entry for a device such as ``cuda:1``. Raises ``KeyError`` for a kind that kgen has no entry for."""
    return RUNTIMES[kind_of(device).name]


def wait_for(devices: Sequence[Device]) -> None:
    """Wait for the kinds of all these devices."""
    for name in dict.fromkeys(kind_of(device).name for device in devices):
        RUNTIMES[name].wait()
