"""Names of torch, of Python and of kgen that a foreign candidate must not replace, and their comparison.

Namespaces are compared with their contents when a worker began. The functions that compare look no name up in the
candidate's process beyond what they were given.
"""

import sys
from itertools import chain
from operator import is_, methodcaller
from types import ModuleType
from typing import Any, Callable, Mapping, Sequence

import torch

from kgen.evaluator.strict.versions import tells_changes, version_of

#: Modules whose functions and classes must stay the same, beside kgen's own.
_MODULES = (
    "_thread",
    "array",
    "builtins",
    "contextlib",
    "ctypes",
    "gc",
    "importlib",
    "importlib.util",
    "io",
    "json",
    "json.decoder",
    "json.encoder",
    "math",
    "mmap",
    "os",
    "posix",
    "random",
    "select",
    "signal",
    "socket",
    "statistics",
    "struct",
    "subprocess",
    "sys",
    "threading",
    "time",
    "torch",
    "torch.autograd.grad_mode",
    "torch.backends.cuda",
    "torch.backends.cudnn",
    "torch.cuda",
    "torch.cuda.memory",
    "torch.cuda.random",
    "torch.cuda.streams",
    "torch.cuda._gpu_trace",
    "torch.nn",
    "torch.nn.functional",
    "torch.overrides",
    "torch.random",
    "torch.testing",
    "torch.utils._python_dispatch",
    "types",
)
_CLASSES = (
    "json.decoder.JSONDecoder",
    "json.encoder.JSONEncoder",
    "socket.socket",
    "torch.Generator",
    "torch.Tensor",
    "torch._C.TensorBase",
    "torch._utils.CallbackRegistry",
    "torch.cuda.streams.Event",
    "torch.cuda.streams.Stream",
    "torch.nn.Module",
    "torch.nn.Parameter",
    "torch.no_grad",
)
#: torch.compile replaces these.
_REPLACED_BY_TORCH = frozenset({"torch.nn.Module.__init__", "torch.nn.Module.__setstate__"})
#: Operators that the harness calls after a candidate is loaded.
OPERATORS = (
    "__or__.Tensor",
    "__xor__.Tensor",
    "_local_scalar_dense",
    "_pin_memory",
    "_to_copy",
    "abs",
    "add.Tensor",
    "add_.Tensor",
    "any",
    "arange",
    "as_strided",
    "bitwise_and.Scalar",
    "bitwise_or.Tensor",
    "bitwise_xor.Tensor",
    "cat",
    "clone",
    "contiguous",
    "copy_",
    "detach",
    "detach_",
    "empty.memory_format",
    "empty_like",
    "empty_strided",
    "eq.Scalar",
    "eq.Tensor",
    "equal",
    "expand",
    "expand_as",
    "fill_.Scalar",
    "flip",
    "full",
    "is_nonzero",
    "is_pinned",
    "isinf",
    "item",
    "lift_fresh",
    "logical_xor",
    "max",
    "mean",
    "min",
    "mul.Tensor",
    "mul_.Tensor",
    "nan_to_num",
    "narrow",
    "ne.Tensor",
    "nonzero",
    "permute",
    "pin_memory",
    "randint.generator",
    "randint.low_generator",
    "random_.from",
    "randperm.generator",
    "remainder.Scalar",
    "repeat",
    "reshape",
    "resize_",
    "roll",
    "select.int",
    "set_.source_Storage_storage_offset",
    "slice.Tensor",
    "sort",
    "sub.Tensor",
    "to.device",
    "to.dtype",
    "to.dtype_layout",
    "trunc",
    "unbind.int",
    "unfold",
    "unsqueeze",
    "view",
    "view.dtype",
    "where.self",
    "zero_",
)
#: Namespaces that the harness uses to read an output and to send a time.
NEAREST = frozenset(
    {
        "the harness",
        "builtins",
        "torch",
        "torch.Tensor",
        "kgen.evaluator.runtime.arena",
        "kgen.evaluator.runtime.device",
        "kgen.evaluator.runtime.device.HostClock",
        "kgen.evaluator.candidates.calls",
        "kgen.evaluator.candidates.guards",
        "kgen.evaluator.candidates.state",
        "kgen.evaluator.candidates.worker",
        "kgen.evaluator.strict.subject",
    }
)
#: Packages that the evaluator never imports. A process has them where it captures, too: no worker calls what is in
#: them.
UNUSED = tuple(
    f"kgen.{name}"
    for name in (
        "agent",
        "cli",
        "cluster",
        "codegen",
        "compiler",
        "optimized",
        "serve",
        "store",
        "templates",
        "tuning",
        "views",
    )
)
_UNUSED_PREFIXES = tuple(f"{name}." for name in UNUSED)
ABSENT = object()
_VERSION_BYTES = 8
Names = tuple[str, Mapping[str, Any], tuple[tuple[str, Any], ...]]


def names_of_others() -> list[Names]:
    """The namespaces of torch and Python that matter, by name, with their present contents."""
    table = [_kept(name, vars(sys.modules[name]), _is_kept) for name in _MODULES if name in sys.modules]
    for path, kind in _classes():
        table += _kept_class(path, kind)
    return table


def _is_kept(value: Any) -> bool:
    return callable(value) or isinstance(value, (ModuleType, int, float, str, torch.dtype, torch.layout))


def _classes() -> list[tuple[str, type]]:
    """The classes of torch and Python that matter, by name."""
    found = [(path, *path.rpartition(".")[::2]) for path in _CLASSES]
    return [(path, getattr(sys.modules[module], name)) for path, module, name in found]


def own_names() -> list[Names]:
    """The namespaces of the loaded modules of kgen that a worker may use, and of their classes, with their present
    contents."""
    table: list[Names] = []
    for name, module in list(sys.modules.items()):
        if is_kgens(name) and name not in UNUSED and not name.startswith(_UNUSED_PREFIXES):
            table.append(_all_kept(name, vars(module)))
            tables = [(f"{name}.{key}", value) for key, value in vars(module).items() if isinstance(value, dict)]
            table += [_all_kept(label, value) for label, value in tables if not label.endswith("__")]
            own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == name]
            table += [kept for kind in own for kept in _kept_class(f"{name}.{kind.__qualname__}", kind)]
    return table


def _kept(label: str, namespace: Mapping[str, Any], wanted: Callable[[Any], bool]) -> Names:
    kept = tuple(
        (name, value)
        for name, value in namespace.items()
        if wanted(value) and f"{label}.{name}" not in _REPLACED_BY_TORCH
    )
    return label, namespace, kept


def _all_kept(label: str, namespace: Mapping[str, Any]) -> Names:
    return label, namespace, tuple(namespace.items())


def replacements(
    table: Sequence[Names], note: Callable[[str], None], *, operators: Sequence[str]
) -> Callable[[], None]:
    """A function that notes names, bases of classes and operators that have changed since this call."""
    modules, ancestors = sys.modules, vars(type)["__mro__"].__get__
    loaded = [(name, modules[name]) for name in _MODULES if name in modules]
    dump = torch._C._dispatch_dump_table
    kernels_now = [(f"aten::{name}", dump(f"aten::{name}")) for name in operators]
    kinds = [(label, kind, ancestors(kind)) for label, kind in _classes()]
    compare_names = _comparison(table, note)

    def compare() -> None:
        compare_names()
        for name, module in loaded:
            if modules.get(name) is not module:
                note(f"it replaced the module {name}")
        for label, kind, before in kinds:
            if ancestors(kind) is not before:
                note(f"it replaced the bases of {label}")
        for operator, kernels in kernels_now:
            if dump(operator) != kernels:
                note(f"it replaced {operator}")

    return compare


def _comparison(table: Sequence[Names], note: Callable[[str], None]) -> Callable[[], None]:
    """A function that notes names whose values have changed since this call.

    Where Python keeps versions of namespaces, those with another version are compared. Otherwise keys and values of
    all namespaces in a row are compared by identity, without lookups, which miss the processor's cache. Where any
    differs, names are looked up. A namespace that changes in other names, such as counters, is looked up from then on.
    """
    absent, every, each, same, end = ABSENT, all, map, is_, (None,)
    flat, values_of = chain.from_iterable, methodcaller("values")
    kept_in: dict[int, list[Names]] = {}
    for names in table:
        kept_in.setdefault(id(names[1]), []).append(names)
    version, joined = version_of if tells_changes() else lambda space: memoryview(b""), b"".join
    steady = [(kept, space := kept[0][1], version(space), (*space,), (*space.values(),)) for kept in kept_in.values()]
    changing: list[Names] = []

    def in_a_row() -> tuple[list[Any], ...]:
        return (
            [space for _, space, *_ in steady],
            [*flat(keys for *_, keys, _ in steady), None],
            [*flat(values for *_, values in steady), None],
            [version for _, _, version, *_ in steady],
        )

    spaces, keys_now, values_now, versions = in_a_row()
    versions_now = joined(versions)

    def split(found: bytes) -> list[bytes]:
        return [found[i : i + _VERSION_BYTES] for i in range(0, len(found), _VERSION_BYTES)]

    def look_up(names: Names) -> None:
        label, namespace, kept = names
        get = namespace.get
        for name, value in kept:
            if get(name, absent) is not value:
                note(f"it replaced {label}.{name}")

    def is_steady(space: Mapping[str, Any], keys: Sequence[str], values: Sequence[Any]) -> bool:
        return every(each(same, flat((space, end)), (*keys, None))) and every(
            each(same, flat((space.values(), end)), (*values, None))
        )

    def compare() -> None:
        nonlocal spaces, keys_now, values_now, versions, versions_now
        for names in changing:
            look_up(names)
        found, before = joined(versions), versions_now
        if found and found == before:
            return
        versions_now = found  # before contents are compared: what changes later is seen next time
        if found:
            moved = [one for one, *two in zip(steady, split(found), split(before)) if two[0] != two[1]]
        elif every(each(same, flat((*spaces, end)), keys_now)) and every(
            each(same, flat((*each(values_of, spaces), end)), values_now)
        ):
            return
        else:
            moved = steady
        changed = [one for one in moved if not is_steady(one[1], *one[3:])]
        if not changed:
            return
        for names in flat(kept for kept, *_ in changed):
            look_up(names)
            changing.append(names)
        stays = [every(one is not other for other in changed) for one in steady]
        versions_now = joined(version for version, stay in zip(split(found), stays) if stay)
        steady[:] = [one for one, stay in zip(steady, stays) if stay]
        spaces, keys_now, values_now, versions = in_a_row()

    return compare


def is_kgens(name: str) -> bool:
    return name == "kgen" or name.startswith("kgen.")


def _kept_class(label: str, kind: type) -> list[Names]:
    """The attributes of a class, and the inherited names that it must not define."""
    own = vars(kind)
    inherited = {name for base in kind.__mro__[1:] for name in vars(base)} - set(own)
    kept = _all_kept(label, own) if is_kgens(label) else _kept(label, own, lambda _: True)
    return [kept, (label, own, tuple((name, ABSENT) for name in inherited))]
