"""Twins: a module tree with the same tensors as another one, which notices what is changed on it.

    module ── twin ──> twin: other module objects, the same parameters and buffers, the same classes but for the
    watching set an attribute, register a hook, convert the tensors ──> Watch.version

A twin costs no call anything: only changes are noticed. A reader of a part of the tree compares versions, and looks at
the part again (:class:`Facts`) where they differ.
"""

import contextlib
import copy
import functools
from types import MethodType
from typing import Any, Callable, Iterator
from weakref import WeakKeyDictionary

import torch
from torch import nn

WATCH, RUN, REPORT = "_kgen_watch", "_kgen_run", "kgen"  #: entries of a twin's ``__dict__``

#: Entries that are no facts about a module: kgen's own, and marks that torch's compilers leave.
MARKS = {WATCH, RUN, REPORT, "_is_torch_compile", "_compiled_call_impl"}
_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs",
)  # fmt: skip
_STATE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
ALL_HOOKS = (*_HOOKS, *_STATE_HOOKS)
_REGISTERING = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
    "_apply",
    "register_parameter",
    "register_buffer",
    "add_module",
)
_PRIMITIVES = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size)
_MOST_CONTENTS = 512  # entries of the objects that a part holds; more are looked at after other changes only


class Watch:
    """Counts the changes of a part of a tree."""

    def __init__(self) -> None:
        self.version = 0


def watching(root: nn.Module) -> Watch:
    """A watch of a part of a twin's tree."""
    watch = Watch()
    for module in root.modules():
        if WATCH in vars(module):
            vars(module)[WATCH] = (*vars(module)[WATCH], watch)
    return watch


def unwatch(root: nn.Module, watch: Watch) -> None:
    """End a watch."""
    for module in root.modules():
        if WATCH in vars(module):
            vars(module)[WATCH] = tuple(one for one in vars(module)[WATCH] if one is not watch)


def twin(module: nn.Module, *, apart: bool = False) -> nn.Module:
    """A twin of a module; one that is ``apart`` has copies of the objects that the modules hold, too.

    Scripted modules, which are no ordinary Python objects, are in both trees. Raises ``TypeError`` where the root is
    one.
    """
    made: dict[int, nn.Module] = {}
    found = _twin(module, made)
    tensors = {id(x): x for one in made.values() for table in (one._parameters, one._buffers) for x in table.values()}
    for one in made.values():
        for name, value in vars(one).items():  # a method that was put onto a module is one of its twin's
            if isinstance(value, MethodType) and id(value.__self__) in made:
                vars(one)[name] = MethodType(value.__func__, made[id(value.__self__)])
            elif apart and _is_attribute(name) and not isinstance(value, _PRIMITIVES):
                with contextlib.suppress(Exception):  # locks and the like cannot be copied
                    vars(one)[name] = copy.deepcopy(value, {**made, **tensors})
    return found


def base_of(module: nn.Module) -> type[nn.Module]:
    """The class of a module, or that of the module which it is a twin of."""
    return vars(type(module)).get("_kgen_base", type(module))


def _twin(module: nn.Module, made: dict[int, nn.Module]) -> nn.Module:
    if id(module) in made:
        return made[id(module)]
    if isinstance(module, torch.jit.ScriptModule):
        if made:
            return module
        raise TypeError("it is a scripted module")
    found = made[id(module)] = object.__new__(watched(base_of(module)))
    state = {name: value for name, value in vars(module).items() if name not in MARKS}
    for name in (*_TABLES, *ALL_HOOKS, "_non_persistent_buffers_set"):
        if name in state:
            state[name] = state[name].copy()
    state["_modules"] = {
        name: None if child is None else _twin(child, made) for name, child in state["_modules"].items()
    }
    vars(found).update(state)
    vars(found)[WATCH] = ()
    return found


_watched_classes: WeakKeyDictionary[type, type] = WeakKeyDictionary()
_dispatching_classes: WeakKeyDictionary[type, type] = WeakKeyDictionary()


def watched(base: type[nn.Module]) -> type[nn.Module]:
    """The class of twins of a class: like it in everything, but that changes are noticed."""
    if base not in _watched_classes:
        _watched_classes[base] = _watched(base)
    return _watched_classes[base]


def dispatching(base: type[nn.Module]) -> type[nn.Module]:
    """The same, whose ``forward`` asks the module's dispatch."""
    if base not in _dispatching_classes:
        _dispatching_classes[base] = _dispatching(base)
    return _dispatching_classes[base]


def set_run(module: nn.Module, run: Any) -> None:
    """Give a twin a dispatch."""
    vars(module)[RUN] = run
    object.__setattr__(module, "__class__", dispatching(base_of(module)))


def _watched(base: type[nn.Module]) -> type[nn.Module]:
    def changed(self: nn.Module) -> None:
        for watch in vars(self).get(WATCH, ()):
            watch.version += 1

    def __setattr__(self: nn.Module, name: str, value: Any) -> None:
        changed(self)
        base.__setattr__(self, name, value)

    def __delattr__(self: nn.Module, name: str) -> None:
        changed(self)
        base.__delattr__(self, name)

    def noticing(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            changed(self)
            return method(self, *args, **kwargs)

        return call

    def __reduce_ex__(self: nn.Module, protocol: Any) -> Any:
        state = self.__getstate__() if hasattr(self, "__getstate__") else vars(self)
        return remade, (base, RUN in vars(self)), state

    more = {
        "__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__, "_kgen_base": base,
        "__setattr__": __setattr__, "__delattr__": __delattr__, "__reduce_ex__": __reduce_ex__,
        **{name: noticing(getattr(base, name)) for name in _REGISTERING if hasattr(base, name)},
    }  # fmt: skip
    return type(base)(base.__name__, (base,), more)


def _dispatching(base: type[nn.Module]) -> type[nn.Module]:
    is_compiling = torch.compiler.is_dynamo_compiling

    @functools.wraps(base.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return compiled(self, args, kwargs)
        run = self.__dict__.get(RUN)
        return base.forward(self, *args, **kwargs) if run is None else run(self, args, kwargs)

    def compiled(self: nn.Module, args: Any, kwargs: Any) -> Any:
        """A compiler traces one operator for a call like the recorded one, and the original for others."""
        run = getattr(self, RUN, None)
        if run is None or kwargs or torch.is_grad_enabled() or torch.compiler.is_exporting() or not run.takes(args):
            return base.forward(self, *args, **kwargs)
        results = torch.ops.kgen.run(run.handle, list(args))
        return results[0] if run.operation.single else tuple(results)

    more = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "_kgen_base": base,
    }
    return type(base)(base.__name__, (watched(base),), {**more, "forward": forward})


def remade(base: type[nn.Module], dispatches: bool) -> nn.Module:
    """An empty twin, for copies and pickles of one."""
    return object.__new__(dispatching(base) if dispatches else watched(base))


def original_forward(module: nn.Module) -> Callable[..., Any]:
    """The function of a module's own class that computes its forward; it takes the module first."""
    return base_of(module).forward


class Facts:
    """The facts about a part of a tree that a recorded forward depends on, to be compared later.

    They are its classes and modes, its attributes, its submodules, and the names and kinds of its tensors. Values of
    parameters and buffers are no facts.
    """

    def __init__(self, root: nn.Module) -> None:
        self.root = root
        self.modules = [*root.modules()]
        self.of_each = [_facts(module, module is root) for module in self.modules]
        self.renew()

    def renew(self) -> None:
        """Take the present contents of objects and the present functions of classes for the recorded ones."""
        self.contents = list(_contents(self.modules))
        self.classes = [c for c in {base_of(m): None for m in self.modules} if not c.__module__.startswith("torch.")]
        self.forwards = [c.forward for c in self.classes]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("contents", "classes", "forwards")}

    def changed(self) -> str:
        """The reason why the facts do not hold any more, in a few words; empty where they do."""
        modules = [*self.root.modules()]
        if len(modules) != len(self.modules) or any(a is not b for a, b in zip(modules, self.modules)):
            return "its submodules were changed"
        for module, known in zip(modules, self.of_each):
            if reason := _difference(known, _facts(module, module is self.root)):
                return reason
        return self.changed_contents()

    def changed_contents(self) -> str:
        """The reason why contents of objects that modules hold, or forwards of classes, differ; empty where they do
        not."""
        if [c.forward for c in self.classes] != self.forwards:
            return "a forward was patched"
        try:
            for live, kept in self.contents:
                if live != kept:
                    return "an object that it holds was changed"
        except Exception:  # values that cannot be compared are others than before
            return "an object that it holds was changed"
        return ""


def _is_attribute(name: str) -> bool:
    """Whether an entry of a module's ``__dict__`` is neither a table, nor hooks, nor kgen's own."""
    return name not in MARKS and name not in _TABLES and name not in ALL_HOOKS


def _facts(module: nn.Module, is_root: bool) -> dict[str, Any]:
    state = vars(module)
    attributes = {name: value for name, value in state.items() if _is_attribute(name)}
    tensors = {
        name: (type(x), x.shape, x.stride() if x.layout is torch.strided else None, x.dtype, x.device)
        if x is not None
        else None
        for table in ("_parameters", "_buffers")
        for name, x in state.get(table, {}).items()
    }
    hooked = not is_root and any(state.get(name) for name in _HOOKS)
    mode = attributes.pop("training", None)
    return {"class": base_of(module), "mode": mode, "attributes": attributes, "tensors": tensors, "hooked": hooked}


def _difference(known: dict[str, Any], now: dict[str, Any]) -> str:
    if now["class"] is not known["class"]:
        return "a submodule has another class"
    if now["mode"] != known["mode"]:
        return "train() or eval() was called"
    if now["hooked"]:
        return "a submodule has hooks"
    if "forward" in now["attributes"] and "forward" not in known["attributes"]:
        return "a forward was patched"
    if now["tensors"] != known["tensors"]:
        return "its tensors have other shapes, dtypes or devices"
    mine, theirs = now["attributes"], known["attributes"]
    if mine.keys() != theirs.keys() or not all(_same(mine[name], value) for name, value in theirs.items()):
        return "an attribute was changed"
    return ""


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):  # torch's export puts equal containers in the place of others
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(_same, a.values(), b.values()))
    return isinstance(a, _PRIMITIVES) and (a == b or (a != a and b != b))


def _contents(modules: list[nn.Module]) -> Iterator[tuple[Any, Any]]:
    """Containers and the attributes of other objects that modules hold, with copies; tensors and modules have
    tables."""
    seen: set[int] = set()
    left = _MOST_CONTENTS
    for module in modules:
        for name, value in vars(module).items():
            if (
                not _is_attribute(name)
                or id(value) in seen
                or isinstance(value, (nn.Module, torch.Tensor, type, MethodType, *_PRIMITIVES))
            ):
                continue
            seen.add(id(value))
            live = value if isinstance(value, (list, dict, set)) else getattr(value, "__dict__", None)
            if isinstance(live, (list, dict, set)) and live and (left := left - len(live)) >= 0:
                yield live, live.copy()
