"""The conditions of a timing: the state of the device, and of its cache."""

from kgen.devices.runtime import runtime

Conditions = tuple[tuple[str, str | float], ...]


def conditions(device: str, key: str, cold: bool) -> Conditions:
    """The present conditions of the device, whose lock is named ``key``, and of the cache."""
    found: dict[str, str | float] = {"cache": "cold" if cold else "warm", **runtime(device).conditions(key)}
    return tuple(found.items())


def worse(before: Conditions, after: Conditions) -> Conditions:
    """The worse of both: the lower clock, the higher temperature and load, every reason of throttling."""
    found = dict(before)
    for name, value in after:
        other = found.get(name, value)
        if isinstance(value, str) or isinstance(other, str):
            parts = dict.fromkeys(part for text in (other, value) for part in str(text).split(", ") if part != "none")
            found[name] = ", ".join(parts) or "none"
        else:
            found[name] = min(value, other) if name.endswith("mhz") else max(value, other)
    return tuple(found.items())
