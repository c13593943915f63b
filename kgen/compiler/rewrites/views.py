"""Rewrites of views: where values lie in memory is chosen such that kernels take them, and that nothing is copied.

    addmm(b, x.view(-1, k), w).view(s, h, n)   linear(x, w.t(), b): maps behind the product read its rows as they are
    x[arange(b)[:, None], arange(n)]       x: each element is looked up at its own place, as masks of transformers are
    linear(x.transpose(0, 1))              linear(x).transpose(0, 1): the rows of x in their own order
    linear(x.permute(2, 0, 1, 3).reshape(s * b, -1))   the same of x.permute(0, 2, 1, 3), whose rows lie in order
    y.view(s, b * h, d).transpose(0, 1)    torch.as_strided(y, ...): a view in between would be a copy
    linear((p @ v).transpose(1, 2).flatten(2))   the same of a copy, which the kernel of p @ v makes as it stores: heads
    side by side

Modules of PyTorch, as :class:`torch.nn.MultiheadAttention`, put sequences first whatever they are given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kgen.compiler.graph.graph import Node, Operand, OpGraph, Tensor
from kgen.compiler.graph.library_call import Many, Value, X, functional, torch_
from kgen.compiler.graph.source import reshape_call
from kgen.compiler.loops.indices import Size, quotient
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS
from kgen.compiler.operators.views import runs
from kgen.compiler.rewrites.prepared import is_returned
from kgen.compiler.rewrites.view_nodes import in_order, permuted, reshaped


def product_of_viewed_rows(graph: OpGraph) -> OpGraph:
    """Products of a matrix of rows that a view flattened, and others view back, as linear layers of the rows before
    these views.

    ``Conv1D`` of the package transformers is such a product. Between views, no map would be in a product's epilogue.
    """
    for name in [n.name for n in graph.nodes if n.op in ("linear", "mm", "addmm", "matmul")]:
        node = graph.node(name)
        made = _of_viewed_rows(graph, node)
        if made is None:
            continue
        users = graph.users(name)
        graph = graph.with_nodes_for(name, made)
        for user in users:
            graph = graph.without(user.name, made[-1].name)
    return graph.pruned()


def _of_viewed_rows(graph: OpGraph, node: Node) -> list[Node] | None:
    """The linear layer of the rows in front of the view, behind its transposed weight; ``None`` where users do not all
    view it back."""
    x, weight, *bias = node.inputs
    view = graph.producer(x)
    if (
        node.op not in ("linear", "mm", "addmm", "matmul")
        or view is None
        or view.op != "view"
        or node.name in graph.returns
    ):
        return None
    of, flat, result = graph.type(view.inputs[0]), view.type, node.type
    if (
        len(flat.shape) != 2
        or len(of.shape) < 3
        or of.shape[-1] != flat.shape[-1]
        or len(graph.type(weight).shape) != 2
    ):
        return None
    type_ = Tensor((*of.shape[:-1], result.shape[-1]), result.dtype, (*of.multiples[:-1], 0))
    users = graph.users(node.name)
    if not users or any(user.op != "view" or user.type != type_ or user.name in graph.returns for user in users):
        return None
    if any(graph.type(b).shape != result.shape[-1:] for b in bias):
        return None
    nodes = []
    if node.op != "linear":
        nodes.append(permuted(graph.fresh(f"{weight}_turned"), weight, graph.type(weight), (1, 0)))
    inputs = (view.inputs[0], nodes[0].name if nodes else weight, *bias)
    call = functional("linear", *map(Value, range(len(inputs))))
    return [
        *nodes,
        replace(
            node, name=graph.fresh(f"{node.name}_rows"), op="linear", inputs=inputs, type=type_, call=call, attrs=()
        ),
    ]


def places_in_order(graph: OpGraph) -> OpGraph:
    """Look-ups of each element of a tensor at its own place as views."""
    for node in [n for n in graph.nodes if n.op in ("aten.index.Tensor", "index") and n.type is not None]:
        source, *places = node.inputs
        if (
            source in graph.changed
            or is_returned(graph, node.name)
            or len(set(node.inputs)) != len(graph.type(str(source)).shape) + 1
        ):
            continue
        rank, sizes = len(node.type.shape), graph.type(str(source)).sizes()
        found = [_range_along(graph, str(place), rank) for place in places]
        dims = [dim for dim, _ in found]
        if None not in dims and dims == sorted(set(dims)) and all(size == own for (_, size), own in zip(found, sizes)):
            graph = graph.with_node(Node(node.name, "view", (source,), node.type, reshape_call(node.type)))
    return graph


def _range_along(graph: OpGraph, place: str, rank: int) -> tuple[int | None, Size]:
    """The dimension, of ``rank`` ones, along which a value counts from 0, and its size; ``None`` where it is another
    value."""
    type_, node = graph.type(place), graph.producer(place)
    while node is not None and (node.op == "view" or (node.op == "add" and graph.is_zero(node.inputs[1]))):
        node = graph.producer(node.inputs[0])
    long = [dim for dim, size in enumerate(type_.sizes()) if size != 1]
    if node is None or node.op != "arange" or (node["start"], node["step"]) != (0, 1) or len(long) != 1:
        return None, 1
    return long[0] + rank - len(type_.shape), type_.sizes()[long[0]]


def permute_behind(graph: OpGraph) -> OpGraph:
    """Operators of permuted rows that follow the batch within others, as the permuted rows of these operators.

    They are linear layers, norms of rows and maps, up to what is returned.
    """
    for name in [n.name for n in graph.nodes]:
        node = graph.node(name)  # as it reads now: its operands may have been moved before
        if node.type is None or name in graph.returns or node.effect or not any(node.type.multiples[1:]):
            continue
        found = _unpermuted(graph, node)
        if found is None:
            continue
        dims, inputs = found
        order = [dims.index(d) for d in range(len(dims))]
        type_ = node.type.permuted(order)
        if any(type_.multiples[1:]):
            continue
        moved = replace(node, name=graph.fresh(f"{name}_rows"), inputs=inputs, type=type_)
        graph = graph.with_nodes_for(name, (moved, permuted(name, moved.name, type_, dims)))
    return graph


#: Operators of rows along the last dimension, which keep the shape of their first operand.
_OF_ROWS = frozenset(("layer_norm", "rms_norm", "softmax", "log_softmax"))


def _unpermuted(graph: OpGraph, node: Node) -> tuple[tuple[int, ...], tuple[Operand, ...]] | None:
    """The permutation of the dimensions but the last that all large operands have, and the operands without it."""
    last = len(node.type.shape) - 1
    alike = node.inputs if _kind(node) is Kind.POINTWISE else node.inputs[:1]
    if not (_kind(node) is Kind.POINTWISE or node.op == "linear" or (node.op in _OF_ROWS and node["dims"] == (last,))):
        return None
    inputs, permutations = list(node.inputs), set()
    for at, value in enumerate(alike):
        if not isinstance(value, str) or len(graph.type(value).shape) <= 1:
            continue  # alike in each row
        moved = graph.producer(value)
        if moved is None or moved.op != "permute" or len(moved["dims"]) != last + 1 or moved["dims"][-1] != last:
            return None
        inputs[at] = moved.inputs[0]
        permutations.add(moved["dims"])
    return (permutations.pop(), tuple(inputs)) if len(permutations) == 1 else None


def rows_in_order(graph: OpGraph) -> OpGraph:
    """Linear layers whose rows are several dimensions out of order: those in order, and the rows of the result
    permuted.

    Views of the result that undo this go, as those behind the attention of sequences that come first.
    """
    moved: set[str] = set()
    for name in [n.name for n in graph.nodes if n.op == "linear"]:
        node = graph.node(name)
        layout, type_ = _layout(graph, node.inputs[0]), graph.type(node.inputs[0])
        if layout is None or name in graph.returns or node.type is None:
            continue
        rows, features = [atom for dim in layout.dims[:-1] for atom in dim], list(layout.dims[-1])
        order = _dims_of(graph.type(layout.root), [*rows, *features])
        if (
            order is None
            or order[: len(rows)] == sorted(order[: len(rows)])
            or order[len(rows) :] != sorted(order[len(rows) :])
        ):
            continue
        nodes = _linear_in_order(graph, node, layout.root, order, len(rows), type_)
        moved.update(n.name for n in nodes if n.op == "linear")
        graph = graph.with_nodes_for(name, nodes)
    return _undone(graph, moved)


def _linear_in_order(graph: OpGraph, node: Node, root: str, order: list[int], count: int, type_: Tensor) -> list[Node]:
    """The linear layer of the root's dimensions: the first ``count`` of ``order`` are its rows, the others its
    features."""
    given = sorted(order[:count])
    in_order = permuted(graph.fresh(f"{node.name}_dims"), root, graph.type(root), (*given, *order[count:]))

    def of_rows(features: int, dtype: str) -> Tensor:
        return Tensor((*in_order.type.shape[:count], features), dtype, (*in_order.type.multiples[:count], 0))

    rows = reshaped(graph.fresh(f"{node.name}_rows"), in_order.name, of_rows(type_.shape[-1], type_.dtype))
    result = of_rows(node.type.shape[-1], node.type.dtype)
    linear = replace(node, name=graph.fresh(f"{node.name}_in_order"), inputs=(rows.name, *node.inputs[1:]), type=result)
    back = permuted(
        graph.fresh(f"{node.name}_back"), linear.name, result, (*(given.index(d) for d in order[:count]), count)
    )
    return [in_order, rows, linear, back, reshaped(node.name, back.name, node.type)]


def _undone(graph: OpGraph, moved: set[str]) -> OpGraph:
    """Views of the ``moved`` values that come to one permutation of them, as that, or as nothing."""
    for name in [n.name for n in graph.nodes if moved and _kind(n) is Kind.VIEW and n.name not in graph.returns]:
        layout = _layout(graph, name)
        if layout is None or layout.root not in moved or any(len(dim) > 1 for dim in layout.dims):
            continue
        node, root = graph.node(name), graph.type(layout.root)
        dims = _dims_of(root, [atom for dim in layout.dims for atom in dim])
        if dims is None or len(dims) != len(node.type.shape):
            continue
        if dims == sorted(dims):
            graph = graph.without(name, layout.root)
        else:
            graph = graph.with_node(permuted(name, layout.root, root, tuple(dims)))
    return graph


def _dims_of(type_: Tensor, atoms: list[tuple[Size, int]]) -> list[int] | None:
    """The dimensions that the runs of elements are; ``None`` where they are not all of them, each as a whole."""
    dense = _dense("", type_)
    own = {dim[0]: d for d, dim in enumerate(dense.dims) if dim} if dense else {}
    found = [own[atom] for atom in atoms if atom in own]
    return found if len(found) == len(atoms) == len(type_.shape) else None


def views_in_one(graph: OpGraph) -> OpGraph:
    """Views after one another of a linear layer's result as one, where a view in between would be a copy.

    Operators that no kernel takes read the last view; kernels read through views as they are.
    """
    for node in graph.nodes:
        users = graph.users(node.name)
        if (
            _kind(node) is not Kind.VIEW
            or node.name in graph.returns
            or not users
            or any(user.op in OPS for user in users)
        ):
            continue
        layout = _layout(graph, node.name)
        made = graph.producer(layout.root) if layout is not None else None
        if made is None or made.op != "linear" or not layout.copied:
            continue
        strides = [_stride(atoms) for atoms in layout.dims]
        if None in strides:
            continue
        start = (layout.start,) if layout.start else ()
        call = torch_("as_strided", X, Many(node.type.sizes()), Many(tuple(strides)), *start)
        graph = graph.with_node(Node(node.name, "aten.as_strided.default", (layout.root,), node.type, call))
    return graph


def store_as_read(graph: OpGraph) -> OpGraph:
    """Copy what a kernel makes to where a view of it lies, if products alone read that view and a view would be a copy.

    The kernel then stores its results in that order. Windows of an image that was rolled are such a view.
    """
    read_by_products = _read_by_products(graph)  # copies change what is read before them, and not behind them
    for name in [n.name for n in graph.nodes if n.op == "view" and n.name in read_by_products]:
        node = graph.node(name)
        if _is_copied_from_kernel(graph, node):
            view = replace(node, name=graph.fresh(f"{name}_read"))
            graph = graph.with_nodes_for(name, (view, in_order(name, view)))
    return graph


def _read_by_products(graph: OpGraph) -> set[str]:
    """The views that contractions alone read, directly or through views."""
    found: set[str] = set()
    for node in reversed([node for node in graph.nodes if _kind(node) is Kind.VIEW]):
        kinds = {Kind.CONTRACTION if user.name in found else _kind(user) for user in graph.users(node.name)}
        if kinds == {Kind.CONTRACTION} and node.name not in graph.returns:
            found.add(node.name)
    return found


def _is_copied_from_kernel(graph: OpGraph, node: Node) -> bool:
    """Whether the value is a copy in another order of the result of a map, a gather or a product of inputs.

    Nothing else reads that result.
    """
    layout = _layout(graph, node.name)
    if layout is None or not layout.copied or any(node.type.multiples[1:]):
        return False
    made: Node | None = node
    while made is not None and _kind(made) is Kind.VIEW:
        of = graph.producer(made.inputs[0])
        if of is None or not graph.feeds_only(of.name, made):
            return False
        made = of
    return (
        made is not None and (_kind(made) in (Kind.POINTWISE, Kind.INDEXED) or made.op == "matmul") and not made.effect
    )


def order_outputs(graph: OpGraph) -> OpGraph:
    """Put outputs in PyTorch's order of dimensions: each is a permutation of a tensor that is stored in that order.

    Elementwise work on a transposed view keeps the view's order in PyTorch, so that callers may view the result.
    """
    for name in dict.fromkeys(graph.returns):
        node, order, own = graph.producer(name), graph.order(name), _own_order(graph, name)
        if node is None or node.type is None or node.effect or own is None or own == order:
            continue
        first, stored = (graph.fresh(f"{name}_{part}") for part in ("values", "stored"))
        nodes, source = [replace(node, name=first)], first
        if order:
            nodes.append(permuted(graph.fresh(f"{name}_ordered"), first, node.type, order))
            source = nodes[-1].name
        left = _is_view_of_library_call(graph, node) or any(node.type.multiples[1:])
        nodes.append(
            Node(
                stored if order else name,
                _LIBRARY_COPY if left else "copy",
                (source,),
                nodes[-1].type,
                X.method("contiguous"),
            )
        )
        if order:
            nodes.append(permuted(name, stored, nodes[-1].type, tuple(order.index(d) for d in range(len(order)))))
        graph = graph.with_nodes_for(name, nodes)
    return graph


_LIBRARY_COPY = "aten.contiguous.default"  # no copy where the operand lies in that order already


def _is_view_of_library_call(graph: OpGraph, node: Node | None) -> bool:
    """Whether the node, or what it is a view of, is always a library call, whose result may lie in any order."""
    while _kind(node) is Kind.VIEW:
        node = graph.producer(node.values[0])
    return node is not None and node.op not in OPS


def _own_order(graph: OpGraph, name: str) -> tuple[int, ...] | None:
    """The order in memory of a value's dimensions, where kernels store values as they are; ``None`` where it is not
    known.

    A view of an input lies as PyTorch's does.
    """
    node = graph.producer(name)
    if _kind(node) is not Kind.VIEW:
        return ()
    layout = _layout(graph, name)
    if layout is None or graph.producer(layout.root) is None:
        return None
    strides = [_stride(dim) for dim in layout.dims]
    large = [d for d, dim in enumerate(layout.dims) if dim]
    if any(strides[d] is None for d in large):
        return None
    outer = iter(sorted(large, key=lambda d: -(strides[d] or 0)))
    order = tuple(next(outer) if dim else d for d, dim in enumerate(layout.dims))
    return order if order != tuple(range(len(order))) else ()


def _kind(node: Node | None) -> Kind | None:
    return OPS[node.op].kind if node is not None and node.op in OPS else None


#: Runs of elements at equal distances: how many there are, and the distance. Those of one dimension, the innermost
#: last.
_Atoms = tuple[tuple[Size, int], ...]


@dataclass(frozen=True)
class _Layout:
    """Where the elements of a view lie in a dense tensor ``root``, from ``start`` on; ``copied``: a view on the way
    would be a copy."""

    root: str
    dims: tuple[_Atoms, ...]
    start: int = 0
    copied: bool = False


def _layout(graph: OpGraph, name: str) -> _Layout | None:
    """The layout of a view in what it is a view of, taken as dense; ``None`` where it has none."""
    node = graph.producer(name)
    if _kind(node) is not Kind.VIEW:
        type_ = graph.known_type(name)
        return _dense(name, type_) if type_ is not None else None
    layout = _layout(graph, node.inputs[0])
    if layout is None:
        return None
    if node.op == "permute":
        return replace(layout, dims=tuple(layout.dims[d] for d in node["dims"]))
    if node.op == "view":
        return _reshaped(layout, graph.type(node.inputs[0]), node.type)
    if node.op not in ("select", "slice") or len(taken := layout.dims[node["dim"]]) != 1:
        return None
    at, ((_, stride),) = node["dim"], taken
    if node.op == "select":
        return replace(layout, dims=layout.dims[:at] + layout.dims[at + 1 :], start=layout.start + stride * node["at"])
    size = node.type.sizes()[at]
    part: _Atoms = ((size, stride * node["step"]),) if size != 1 else ()
    return replace(
        layout, dims=(*layout.dims[:at], part, *layout.dims[at + 1 :]), start=layout.start + stride * node["start"]
    )


def _dense(root: str, type_: Tensor) -> _Layout | None:
    if any(type_.multiples[1:]):
        return None
    dims, stride = [], 1
    for size in reversed(type_.sizes()):
        dims.append(((size, stride),) if size != 1 else ())
        stride *= size if isinstance(size, int) else 1
    return _Layout(root, tuple(reversed(dims)))


def _reshaped(layout: _Layout, before: Tensor, after: Tensor) -> _Layout | None:
    """The layout of a reshaped tensor, whose dimensions may hold several runs of elements each."""
    dims: list[_Atoms] = []
    for own, new in runs(before, after):
        atoms = [atom for dim in layout.dims[own] for atom in dim]
        found: list[_Atoms] = []
        for size in reversed(after.sizes()[new]):
            taken: list[tuple[Size, int]] = []
            while size != 1:
                if not atoms:
                    return None
                have, stride = atoms.pop()
                if (rest := quotient(size, have)) is not None:
                    taken.insert(0, (have, stride))
                    size = rest
                elif (outer := quotient(have, size)) is not None and isinstance(size, int):
                    atoms.append((outer, stride * size))
                    taken.insert(0, (size, stride))
                    size = 1
                else:
                    return None
            found.insert(0, tuple(taken))
        dims += found
    copied = layout.copied or any(_stride(atoms) is None for atoms in dims)
    return replace(layout, dims=tuple(dims), copied=copied)


def _stride(atoms: _Atoms) -> int | None:
    """The distance between neighbours of a dimension; ``None`` where they are not equally far apart."""
    for (_, outer), (size, inner) in zip(atoms, atoms[1:]):
        if not isinstance(size, int) or outer != size * inner:
            return None
    return atoms[-1][1] if atoms else 1
