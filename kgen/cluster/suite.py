"""Problems of a suite beside each other on a cluster: each has a process of the driver, and devices of its own."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.cluster.connection import connect
from kgen.cluster.devices import open_devices
from kgen.cluster.fleet import Fleet, Node
from kgen.tuning import events, sweep
from kgen.tuning.side_by_side import Run, SideBySide


@dataclass(frozen=True)
class _Place:
    """The devices of one process: their cluster, the kind of its fleet, and their number. Calling it connects."""

    address: str
    with_code: bool
    device: str | None
    nodes: tuple[Node, ...]
    devices: int

    def __call__(self) -> Run:
        connect(self.address, with_code=self.with_code)
        fleet = Fleet(self.device, known=self.nodes)
        return lambda request, tell: sweep.run(request, tell, open_devices(fleet, self.devices))


def side_by_side(
    address: str, fleet: Fleet, device: str | None, problems: int, on_event: events.Listener
) -> SideBySide:
    """Runs sweeps of a suite of ``problems`` on the devices of ``fleet``. Each problem has one device, or more where
    there are fewer problems than devices."""
    every = fleet.kind.devices
    each = max(1, every // problems)
    place = _Place(address, fleet.with_code, device, tuple(fleet.nodes), each)

    def tell(running: int) -> None:
        on_event(events.Cluster(len(fleet.kind.nodes), every, running * each))

    return SideBySide(min(every // each, problems), place, tell)
