"""The expected values that stay in a device's memory, and those that wait on the host."""

from kgen.devices.kinds import HOST, kind_of
from kgen.evaluator.correctness.cases import Case
from kgen.evaluator.correctness.distributions import Distribution

_RESIDENT_BYTES = (
    1 << 30
)  #: bytes of expected values on a GPU beside those of the problem's own inputs; others move to the host


class Resident:
    """The cases whose expected values are on ``device``. Beside the largest, they have ``room`` bytes and a constant
    more."""

    def __init__(self, device: str, room: int) -> None:
        self._device, self._room = device, room
        self._apart = kind_of(device).accelerator  # whether it has memory of its own
        self._resident: list[Case] = []  # the latest used last

    def keep(self, case: Case, own: Distribution) -> None:
        """Bring a case's expected values to the device. Of too many, those used longest ago move to the host. Those of
        the distribution ``own``, the problem's inputs with all rows, move only for others of their kind."""
        if not self._apart:
            return
        if any(e.exact.device.type == HOST.name for e in case.expected):
            case.aside, case.expected = case.expected, [e.to(self._device) for e in case.expected]
        others = [one for one in self._resident if one is not case]
        moving = [one for one in others if one.distribution is not own or case.distribution is own]
        self._resident = [*others, case]

        def held(one: Case) -> int:
            return sum(e.nbytes for e in one.expected)

        largest = max((held(one) for one in self._resident if one.distribution is own), default=0)
        most = largest + _RESIDENT_BYTES + self._room
        while moving and sum(map(held, self._resident)) > most:
            oldest = moving.pop(0)
            self._resident.remove(oldest)
            oldest.expected = oldest.aside or [e.to(HOST.name) for e in oldest.expected]
