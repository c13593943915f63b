"""Calls: one call of an exported program, read for the table of operators, and as the library's call."""

from __future__ import annotations

import operator
from typing import Any, Mapping, Protocol, Sequence

from kgen.compiler.graph.graph import Ref, refs
from kgen.compiler.graph.library_call import DEVICE, Applied, Code, Item, LibraryCall, Literal, Many, Value, number_on

#: Python's functions that may stand in a program.
_FUNCTIONS = {operator.getitem: Item}
#: Operators that take no number which lies on another device than their first operand.
_ON_ONE_DEVICE = frozenset(f"aten.{name}.Tensor" for name in ("clamp", "clamp_min", "clamp_max"))


class NeedsFunctional(Exception):
    """The program writes in place where the graph cannot follow, or has regions that a functional one has not."""


class Program(Protocol):
    """The program that a call stands in, as its reader knows it. Its ``nodes`` are those of torch.fx."""

    functional: bool
    nodes: Sequence[Any]
    others: Mapping[Any, Any]
    renamed: dict[Any, Any]

    def failure(self, reason: str, n: Any) -> Exception:
        """The error that names the line of a call."""

    def is_user_input(self, n: Any) -> bool:
        """Whether a placeholder is an input of forward."""

    def writes_input(self, given: Any, n: Any | None = None) -> Exception:
        """The error of a forward that changes an input."""

    def refuse_parameter(self, given: Any, n: Any | None = None) -> None:
        """Raise where a call writes into a parameter."""

    def value(self, n: Any) -> Any:
        """The value of a node."""

    def number(self, a: Any, b: Any) -> Any:
        """A number, from both programs."""


class Call:
    """One call of an ATen operator, read for the table and spelled as Python source."""

    def __init__(self, reader: Program, n: Any) -> None:
        self.reader, self.n = reader, n
        target = n.target
        self.is_operator = hasattr(target, "_schema")
        if self.is_operator:
            self.target = str(target)  # aten.linear.default
        elif target in _FUNCTIONS:
            self.target = f"_operator.{target.__name__}"
        else:
            raise self._unknown()
        other = reader.others.get(n)
        self.args = tuple(self._read(a, b) for a, b in zip(n.args, other.args if other else n.args))
        self.kwargs = {
            k: self._read(v, other.kwargs[k] if other and k in other.kwargs else v) for k, v in n.kwargs.items()
        }
        self.effect = is_mutable(n)
        if self.effect and self._writes_own_value():
            # x.relu_() on a value of the graph: the same as y = relu(x) with y for x from here on.
            self.target = self.target.replace("_.", ".", 1)
            self.effect = False
            reader.renamed[n.args[0]] = n

    def _unknown(self) -> Exception:
        """The error for a call of no operator. Functional programs have no regions without gradients and no
        ``vmap``."""
        name = getattr(self.n.target, "__name__", str(self.n.target))
        if not self.reader.functional:
            return NeedsFunctional()
        return self.reader.failure(f"it calls {name}, which is no operator", self.n)

    def _writes_own_value(self) -> bool:
        """Whether the call writes in place into a value that the graph itself made."""
        target = self.n.target
        if not (self.args and isinstance(self.args[0], Ref) and target._schema.name.endswith("_")):
            return False
        base = root = self.n.args[0]
        while root.op != "placeholder" and is_mutable(root):
            root = root.args[0]  # a tensor that was written in place is the same tensor
        if self.reader.is_user_input(root):
            raise self.reader.writes_input(root, self.n)
        if root.op == "placeholder":
            self.reader.refuse_parameter(root, self.n)
            return False
        if is_view(base) and self._is_seen_elsewhere(base):
            raise NeedsFunctional
        if any(is_view(u) and any(self._after(w) for w in u.users) for u in base.users if not self._after(u)):
            raise NeedsFunctional
        return True

    def _is_seen_elsewhere(self, view: Any) -> bool:
        """Whether a call from this one on reads the view's memory, other than through the view."""
        shared, base = {view}, view
        while base.op != "placeholder" and _shares(base):
            base = base.args[0]
            shared.add(base)
        if base.op == "placeholder":
            return True
        waiting = list(shared)
        while waiting:
            found = {u for u in waiting.pop().users if u is not self.n and _shares(u)} - shared
            shared |= found
            waiting += found
        return any(self._after(u) for value in shared - {view} for u in value.users)

    def _after(self, other: Any) -> bool:
        """Whether the other call comes after this one."""
        order = self.reader.nodes
        return order.index(other) > order.index(self.n)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by the schema's names, defaults filled in; tensors as ``Ref``."""
        if not self.is_operator:
            return {str(i): a for i, a in enumerate(self.args)}
        schema = self.n.target._schema.arguments
        given = {a.name: v for a, v in zip(schema, self.args)} | self.kwargs
        defaults = {
            a.name: tuple(a.default_value) if isinstance(a.default_value, list) else a.default_value for a in schema
        }
        return defaults | given

    def _read(self, a: Any, b: Any) -> Any:
        import torch

        if isinstance(a, torch.fx.Node):
            return self.reader.value(a)
        if isinstance(a, (list, tuple)):
            return tuple(self._read(x, y) for x, y in zip(a, b))
        if a is None or isinstance(a, (bool, int, float, str)):
            return self.reader.number(a, b)
        if isinstance(a, torch.device):
            return DEVICE
        return Code(str(a))

    def library_call(self) -> LibraryCall:
        """The call as the library's, whose operands are numbered in the order of :func:`refs`."""
        order = refs(self.arguments)

        def read(value: Any) -> Any:
            if isinstance(value, Ref):
                return Value(order.index(value.name))
            if isinstance(value, tuple):
                return Many(tuple(map(read, value)))
            if isinstance(value, Literal) and self.target in _ON_ONE_DEVICE:
                return number_on(DEVICE, value)
            return value

        args = tuple(map(read, self.args))
        if not self.is_operator:
            return _FUNCTIONS[self.n.target](*args)
        return Applied(self.target, args, tuple((name, read(value)) for name, value in self.kwargs.items()))


def is_mutable(n: Any) -> bool:
    """Whether a call writes into one of its arguments."""
    schema = getattr(n.target, "_schema", None)
    return schema is not None and schema.is_mutable


def is_region(n: Any) -> bool:
    """Whether a call runs a graph of its own, as ``enable_grad`` and autocast do; it may write into what it is
    given."""
    import torch

    return isinstance(n.target, torch._ops.HigherOrderOperator)


def is_view(n: Any) -> bool:
    """Whether a call's result may share its operand's memory."""
    schema = getattr(n.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def _shares(n: Any) -> bool:
    """Whether a call's result may lie in its first operand's memory: a view, a value that was written, or a part."""
    return is_view(n) or is_mutable(n) or n.target is operator.getitem
