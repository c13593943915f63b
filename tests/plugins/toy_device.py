"""A plug-in for tests: a kind of device, the machine's own cores under another name, with one schedule and short finals."""

from __future__ import annotations

from dataclasses import replace

from toy_plugin import TEMPLATE

from kgen.codegen import registry, target
from kgen.devices import runtime
from kgen.devices.hardware import Hardware, cpu
from kgen.devices.kinds import HOST
from kgen.templates.cpu.target import TARGET


class Toy(runtime.Cpu):
    """Asked like the cores that it computes with; it is used only where it is named."""

    def found(self, asked: str | None) -> str | None:
        return asked

    def every(self) -> tuple[str, ...]:
        return ("toy",)

    def hardware(self, device: str) -> Hardware:
        return replace(cpu(), device_type="toy", name="a toy")


runtime.add(replace(HOST, name="toy", first="toy", torch=HOST.name, final_seconds=1.0), Toy())
target.add(replace(TARGET, device_type="toy"))
registry.add(replace(TEMPLATE, device_type="toy"))
