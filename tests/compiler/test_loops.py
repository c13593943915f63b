"""Programs: where operands are read, what makes one kernel, and how sweeps over the row are scheduled."""

from __future__ import annotations

import itertools

import pytest
import sympy
import torch
from models import graph, made, source

from kgen.codegen.c_printer import c_float
from kgen.compiler.graph.graph import NotFusable, OpGraph, Tensor
from kgen.compiler.graph.library_call import BatchSize
from kgen.compiler.loops.access import Loop, Place, Within
from kgen.compiler.loops.expr import SELF
from kgen.compiler.loops.functions import tanh
from kgen.compiler.loops.indices import Axes, FloorDiv, Modulo, spell
from kgen.compiler.loops.passes import Passes, passes_of
from kgen.compiler.loops.program import Program
from kgen.compiler.lower.concatenation import chosen
from kgen.compiler.lower.lowering import lower
from kgen.compiler.operators.table import OPS


def captured(forward: str, inputs: str = "torch.randn(6, 20)", init: str = "", arguments: str = "x") -> OpGraph:
    return graph(made(source(forward, inputs, init, arguments)))


def program(
    forward: str, inputs: str = "torch.randn(6, 20)", init: str = "", arguments: str = "x", *, two_passes: bool = False
) -> Program:
    """All operators of the forward that are known as one kernel."""
    found = captured(forward, inputs, init, arguments)
    return lower(found, [n.name for n in found.nodes if n.op in OPS], found.returns, two_passes=two_passes)


# Places: index expressions, evaluated, against torch's broadcasting


def access(tensor: Tensor, domain: tuple[int | BatchSize, ...], cols: int) -> Place:
    """Where a tensor that is broadcast to the domain is read; its trailing dimensions of ``cols`` elements are columns."""
    axes = Axes()
    index = [axes.index(f"d{number}", size) for number, size in enumerate(domain)]
    sizes = tensor.sizes()
    behind = index[len(domain) - len(sizes) :]
    offset = axes.flat([0 * i if size == 1 else i for i, size in zip(behind, sizes)], sizes)
    loops: list[list[Loop]] = [[], []]
    inner = 1
    for i in reversed(index):
        if i != 0:
            loops[inner < cols].insert(0, Loop(i, axes.extents[i]))
            inner *= axes.extents[i] if isinstance(axes.extents[i], int) else 1
    return Place(offset, tuple(loops[0]), tuple(loops[1]))

DOMAINS = [
    (6, 20),
    (1, 20),
    (5, 1),
    (1, 1),
    (7,),
    (4, 3, 8),
    (4, 1, 8),
    (3, 4, 5, 6),
    (2, 1, 3, 1),
    (2, 2, 2, 2),
    (2, 3, 1, 4, 2),
]


def broadcasts(domain: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every shape that broadcasts to the domain: dimensions of one, and leading ones dropped."""
    found = {()}
    for drop in range(len(domain)):
        found |= set(itertools.product(*({1, size} for size in domain[drop:])))
    return sorted(found)


def read(index: str, domain: tuple[int, ...], cols: int) -> list[int]:
    """The index of every element of the domain, evaluated as C would (all values are positive)."""
    code = compile(index.replace("/", "//"), "<index>", "eval")
    rows = torch.Size(domain).numel() // cols
    return [eval(code, {"row": row, "col": col}) for row in range(rows) for col in range(cols)]


def expected(shape: tuple[int, ...], domain: tuple[int, ...]) -> list[int]:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).expand(domain).flatten().tolist()


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_index_is_that_of_torch_broadcasting(domain: tuple[int, ...]) -> None:
    for shape in broadcasts(domain):
        for dims in range(len(domain) + 1):
            cols = torch.Size(domain[len(domain) - dims :]).numel()
            found = access(Tensor(shape), domain, cols)
            assert read(found.index(), domain, cols) == expected(shape, domain), (shape, cols, found.index())


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_place_takes_the_numbers_that_stand_in_its_index(domain: tuple[int, ...]) -> None:
    for shape in broadcasts(domain):
        for dims in range(len(domain) + 1):
            found = access(Tensor(shape), domain, torch.Size(domain[len(domain) - dims :]).numel())
            names = compile(found.index().replace("/", "//"), "<index>", "eval").co_names
            assert (found.takes_row, found.takes_col) == ("row" in names, "col" in names), (shape, found.index())


def test_place_takes_the_numbers_that_its_mask_takes_and_none_that_it_spells() -> None:
    row, col = Loop(sympy.Symbol("i"), 4), Loop(sympy.Symbol("j"), 5)
    masked = Place(sympy.Integer(0), (row,), (col,), (Within(col.symbol, 3),))
    assert (masked.takes_row, masked.takes_col) == (False, True)
    spelled = Place(row.symbol * 5 + col.symbol, (row,), (col,), spelled=((row.symbol, "line"),))
    assert (spelled.takes_row, spelled.takes_col) == (False, True)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_index_of_a_batch_holds_at_any_size(domain: tuple[int, ...]) -> None:
    symbolic = (BatchSize(1), *domain[1:])
    for shape in broadcasts(domain):
        batched = len(shape) == len(domain) and shape[0] == domain[0]
        tensor = Tensor(shape, multiples=(1,) + (0,) * (len(shape) - 1) if batched else ())
        for dims in range(len(domain)):
            cols = torch.Size(domain[len(domain) - dims :]).numel()
            if not batched and shape[:1] == domain[:1] and len(shape) == len(domain) and domain[0] != 1:
                continue  # of a fixed size that is the batch's by chance: does not broadcast at another
            index = access(tensor, symbolic, cols).index()
            for size in (1, 3, 5):
                resized = (size, *domain[1:])
                actual = (size, *shape[1:]) if batched else shape
                assert read(index, resized, cols) == expected(actual, resized), (shape, cols, index)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("width", [2, 4])
def test_vectors_are_read_as_their_mode_says(domain: tuple[int, ...], width: int) -> None:
    for shape in broadcasts(domain):
        for dims in range(len(domain) + 1):
            cols = torch.Size(domain[len(domain) - dims :]).numel()
            if cols % width:
                continue
            found = access(Tensor(shape), domain, cols)
            indices = read(found.index(), domain, cols)
            groups = [indices[at : at + width] for at in range(0, len(indices), width)]
            if found.mode(width) == "vector":
                assert all(g == list(range(g[0], g[0] + width)) and g[0] % width == 0 for g in groups), (shape, cols)
            elif found.mode(width) == "splat":
                assert all(len(set(g)) == 1 for g in groups), (shape, cols)


def test_full_access_is_the_element_itself() -> None:
    assert [shape for shape in broadcasts((6, 20)) if access(Tensor(shape), (6, 20), 20).full] == [(6, 20)]


@pytest.mark.parametrize(
    ("shape", "mode"), [((20,), "vector"), ((6, 1), "splat"), ((1,), "splat"), ((6, 20), "vector")]
)
def test_common_operands_are_read_without_gathering(shape: tuple[int, ...], mode: str) -> None:
    assert access(Tensor(shape), (6, 20), 20).mode(4) == mode


def test_channels_of_images_are_gathered_only_where_vectors_cross_them() -> None:
    modes = [access(Tensor((3, 1, 1)), (2, 3, 4, side), 12 * side).mode(4) for side in (4, 8)]
    assert modes == ["splat", "splat"]
    assert access(Tensor((3, 1, 1)), (2, 3, 3, 3), 27).mode(4) == "gather"


# Lowering


def test_maps_are_on_elements() -> None:
    found = program("return torch.tanh(x) * 2.0")
    assert [(s.expression, s.level) for s in found.steps] == [(tanh(SELF), "element"), (SELF * 2.0, "element")]


def test_sums_are_of_the_row() -> None:
    found = program("return x.sum(dim=1)")
    assert (found.cols, found.stores[0].level) == (20, "row")


def test_reduction_over_two_dimensions_makes_them_the_row() -> None:
    assert program("return x.sum(dim=(1, 2))", "torch.randn(6, 4, 5)").cols == 20


def test_maps_behind_a_reduction_are_of_the_row() -> None:
    assert [s.level for s in program("return torch.exp(x.amax(dim=1))").steps[1:]] == ["row"]


def test_operand_is_read_once() -> None:
    assert program("return x * torch.tanh(x) + x").tensors == ("x",)


def test_two_outputs_are_stored() -> None:
    found = program("y = torch.tanh(x)\nreturn y, y.sum(dim=1)")
    assert [(s.tensor, s.level) for s in found.stores] == [("tanh", "element"), ("sum_1", "row")]


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x.sum(dim=1).softmax(dim=0)", "torch.randn(6, 20)"),
        ("y = x.sum(dim=2)\nreturn y.sum(dim=1)", "torch.randn(6, 4, 5)"),
        ("return x.relu() + x.sum(dim=1)", "torch.randn(6, 6)"),
        ("return x.relu()", "torch.zeros(0, 20)"),
        ("return x[:, 1:] * 2, x[:, 0] * 3", "torch.randn(6, 20)"),  # values of rows are stored behind a reduction alone
        ("for n in range(150):\n    x = x * x[:, :1]\nreturn x", "torch.randn(6, 20)"),
        ("return x.transpose(0, 1).reshape(-1, 8).relu().reshape(3, -1, 8).transpose(0, 1)", "torch.randn(6, 3, 8)"),
    ],
)
def test_what_makes_no_kernel_says_so(forward: str, inputs: str) -> None:
    with pytest.raises(NotFusable):
        program(forward, inputs)


def test_sums_of_a_contraction_are_not_repeated_along_other_axes() -> None:
    gate = ("return x * self.l(s).sigmoid()[:, :, None]", "torch.randn(6, 4, 9), torch.randn(6, 5)")
    with pytest.raises(NotFusable, match="repeated along other axes"):
        program(*gate, init="self.l = nn.Linear(5, 4)", arguments="x, s")


def test_transposed_images_of_a_convolution_are_made_in_front_of_it() -> None:
    found = program("return self.c(x.transpose(1, 2))", "torch.randn(4, 20, 16)", "self.c = nn.Conv1d(16, 32, 1)").contraction
    assert found and not found.turned and found.x == "transpose" and found.before


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x[:, :, None] * x[:, None, :]", "torch.randn(2, 16)"),
        ("return x.relu()[:, :, None] * x[:, None, :], x + 1.0", "torch.randn(2, 16)"),
        ("return x[:, :, None, :] * x[:, None, :, :]", "torch.randn(2, 8, 4)"),
    ],
)
def test_axes_of_one_value_stay_apart_where_they_read_one_tensor(forward: str, inputs: str) -> None:
    found = program(forward, inputs)
    assert (found.rows * found.cols, len(found.loads)) == (2 * 256, 2)


@pytest.mark.parametrize(
    ("forward", "stores"),
    [
        ("y, z = x.chunk(2, -1)\nreturn torch.cat([-z, y], -1).exp()", ["row * 20 + col", "row * 20 + col + 10"]),
        ("return torch.stack([x.exp(), x], -1)", ["row * 40 + col * 2", "row * 40 + col * 2 + 1"]),
        ("return torch.cat([x[:, :5], x[:, 15:], x[:, :5].exp()], 1)", [f"row * 15 + col{at}" for at in ("", " + 5", " + 10")]),
        ("return torch.ops.aten.constant_pad_nd(x, [10, 10]) * 2.0", [f"row * 40 + col{at}" for at in ("", " + 10", " + 20", " + 30")]),
        ("return torch.cat([x, x[:, :5]], 1)", ["row * 25 + col"]),
        ("return torch.cat([x, x.exp()], 1).sum(1)", ["row"]),
    ],
)  # fmt: skip
def test_equal_parts_of_an_axis_are_stored_without_masks(forward: str, stores: list[str]) -> None:
    found = program(forward)
    assert [store.access.index() for store in found.stores] == stores
    assert len(stores) == 1 or not any(load.access.mask for load in found.loads)


def test_tables_that_are_stacked_are_looked_up_for_their_own_part_alone() -> None:
    init = "self.t = nn.ModuleList(nn.Embedding(9, 16) for _ in range(7))"
    of = graph(made(source("return torch.stack([t(x[k]) for k, t in enumerate(self.t)], 1)", "torch.randint(0, 9, (7, 5))", init)))
    program = lower(of, [n.name for n in of.nodes], of.returns)
    assert len(program.stores) == 7 and not any(load.access.mask for load in program.loads)


def test_values_that_only_a_mask_chooses_are_summed_along_its_axis() -> None:
    found = program("return torch.stack([x.exp(), x], -1).logsumexp(-1)")
    assert (found.cols, found.strided) == (2, True)


def test_schedule_of_a_program_is_made_once() -> None:
    found = program("return x.softmax(dim=1)")
    assert passes_of(found, keep=True) is passes_of(found, keep=True) is not passes_of(found, keep=False)


def test_names_of_the_language_are_avoided() -> None:
    found = program(
        "return row * double + float",
        "torch.randn(6, 20), torch.randn(20), torch.randn(20)",
        arguments="row, double, float",
    )
    assert not {load.name for load in found.loads} & {"row", "double", "float"}


def test_rows_of_several_operands_are_read_through_one_pointer() -> None:
    of, (one,) = chosen(program("return torch.cat((x, y), 1).softmax(-1)", "torch.randn(4, 3, 8), torch.randn(4, 6, 8)", arguments="x, y"))
    assert [x.name for x in of.loads] == [one.load.name] and one.load.access.mode(4) == "vector"
    assert [(part.tensor, part.condition) for part in one.parts] == [("x", "row % 9 < 3"), ("y", "")]
    units = {sympy.Symbol(name, integer=True): number for name, number in zip(one.numbers, one.parts[1].numbers)}
    (batch, channel), (col,) = (loop.symbol for loop in one.load.access.row_loops), (loop.symbol for loop in one.load.access.col_loops)
    assert sympy.expand(one.load.access.offset.subs(units)) == 48 * batch + 8 * channel - 24 + col


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.cat((x, y), 2).softmax(-1)",  # columns of several operands
        "return torch.cat((x, y.exp()), 1).softmax(-1)",  # an operand that is made in the kernel
        "return torch.cat((x, torch.ops.aten.constant_pad_nd(y, [0, 0, 1, 1])), 1).softmax(-1)",  # an operand that is not there in all of its rows
    ],
)
def test_other_operands_of_rows_are_loaded_where_they_are_there(forward: str) -> None:
    of = program(forward, "torch.randn(4, 3, 8), torch.randn(4, 3, 8)", arguments="x, y")
    assert chosen(of) == (of, ())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1f"), (2, "2.0f"), (1e-5, "1e-05f"), (float("inf"), "INFINITY"), (float("-inf"), "-INFINITY"),
     (float("nan"), "NAN"), (1e300, "INFINITY"), (16777217.0, "16777216.0f"), (-0.0, "-0.0f")],
)  # fmt: skip
def test_numbers_are_literals_of_the_nearest_float(value: float, text: str) -> None:
    assert c_float(value) == text


# Sweeps


def summary(found: Passes) -> list[tuple[tuple[str, ...], ...]]:
    """Of each sweep: what it loads, takes up, keeps, and reduces to."""
    return [
        (tuple(x.name for x in s.loads), s.held, s.keeps, tuple(n for r in s.reductions for n in r.names))
        for s in found.passes
    ]


def test_maps_are_one_pass() -> None:
    assert len(passes_of(program("return torch.tanh(x) * 2.0"), keep=True).passes) == 1


def test_online_softmax_is_two_passes() -> None:
    assert summary(passes_of(program("return x.softmax(dim=1)"), keep=True)) == [
        (("x",), (), ("x",), ("softmax_max", "softmax_sum")),
        ((), ("x",), (), ()),
    ]


def test_softmax_in_two_passes_before_the_last_is_three() -> None:
    found = passes_of(program("return x.softmax(dim=1)", two_passes=True), keep=True)
    assert [s[3] for s in summary(found)] == [("softmax_max",), ("softmax_sum",), ()]


def test_exponentials_are_kept_instead_of_the_row_itself() -> None:
    found = passes_of(program("return x.softmax(dim=1)", two_passes=True), keep=True)
    assert summary(found)[2] == ((), ("softmax_exp",), (), ())


def test_computed_values_are_kept() -> None:
    found = passes_of(program("return torch.tanh(x).softmax(dim=1)"), keep=True)
    assert summary(found) == [(("x",), (), ("tanh",), ("softmax_max", "softmax_sum")), ((), ("tanh",), (), ())]


def test_without_keeping_the_row_is_read_and_computed_again() -> None:
    found = passes_of(program("return torch.tanh(x).softmax(dim=1)"), keep=False)
    assert [([x.name for x in s.loads], [m.name for m in s.maps]) for s in found.passes] == [
        (["x"], ["tanh"]),
        (["x"], ["tanh", "softmax"]),
    ]


def test_broadcast_operands_are_read_again_rather_than_kept() -> None:
    found = passes_of(
        program("return (x * w).softmax(dim=1) * w", "torch.randn(6, 20), torch.randn(1, 20)", arguments="x, w"),
        keep=True,
    )
    assert all("w" not in s.keeps for s in found.passes)


def test_row_operands_are_read_before_the_sweeps() -> None:
    found = passes_of(program("return x * y", "torch.randn(6, 20), torch.randn(6, 1)", arguments="x, y"), keep=True)
    assert [load.name for load in found.row_loads] == ["y"]


@pytest.mark.parametrize(
    ("forward", "kept"),
    [
        ("return torch.tanh(x)", 0),
        ("return x.sum(dim=1)", 0),
        ("return x.softmax(dim=1)", 1),
        ("return torch.tanh(x).softmax(dim=1)", 1),
        ("return F.layer_norm(x, (20,))", 1),
        ("return x.softmax(dim=1) + torch.tanh(x).softmax(dim=1)", 2),
    ],
)
def test_kept_values_are_counted(forward: str, kept: int) -> None:
    assert passes_of(program(forward), keep=True).kept == kept


def test_layer_norm_sums_twice() -> None:
    found = passes_of(program("return F.layer_norm(x, (20,))", two_passes=True), keep=True)
    assert [len(s.reductions) for s in found.passes] == [1, 1, 0]


def test_layer_norm_takes_moments_once() -> None:
    (first, second) = passes_of(program("return F.layer_norm(x, (20,))"), keep=True).passes
    assert [r.kind for r in first.reductions] == ["moments"] and not second.reductions


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    "forward",
    [
        "return torch.tanh(x).softmax(dim=1) * x.sum(dim=1, keepdim=True)",
        "y = torch.tanh(x)\nreturn y, y.sum(dim=1), y.softmax(dim=1)",
        "return F.layer_norm(x, (20,)).logsumexp(dim=1)",
        "return (x - x.amax(dim=1, keepdim=True)).exp().mean(dim=1)",
    ],
)
@pytest.mark.parametrize("two_passes", [True, False])
def test_every_value_is_there_before_it_is_used(forward: str, keep: bool, two_passes: bool) -> None:
    found = program(forward, two_passes=two_passes)
    plan = passes_of(found, keep=keep)
    row_values = {x.name for x in plan.row_loads} | {m.name for m in plan.row_maps}
    kept: set[str] = set()
    stored: set[str] = set()
    for s in plan.passes:
        assert set(s.held) <= kept
        elements = set(s.held) | {x.name for x in s.loads}
        for m in s.maps:
            assert set(m.args) <= elements | row_values, m
            elements.add(m.name)
        assert set(s.keeps) | {r.arg for r in s.reductions} | {x.arg for x in s.stores} <= elements
        kept |= set(s.keeps)
        row_values |= {n for r in s.reductions for n in r.names}
        for m in s.row_maps:
            assert set(m.args) <= row_values, m
            row_values.add(m.name)
        assert {x.arg for x in s.row_stores} <= row_values
        stored |= {x.tensor for x in (*s.stores, *s.row_stores)}
    assert stored == {x.tensor for x in found.stores}


def test_indices_stay_at_least_zero_under_divisions() -> None:
    axes = Axes()
    i = axes.index("i", 4)
    for operation, by in itertools.product((axes.modulo, axes.divide), (2, 3, 4)):
        for constant in (3, 6, 11):
            found = operation(constant - i, by)
            of = [(constant - at) % by if operation == axes.modulo else (constant - at) // by for at in range(4)]
            assert [eval(spell(found, {i: str(at)}).replace("/", "//"), {}) for at in range(4)] == of
            assert all(axes.bounds(atom.args[0])[0] >= 0 for atom in found.atoms(FloorDiv, Modulo))


def test_result_of_a_contraction_that_is_repeated_is_another_kernel() -> None:
    with pytest.raises(NotFusable, match="along other axes"):
        program("return F.interpolate(self.linear(x)[:, None], scale_factor=2)", "torch.randn(6, 20)", "self.linear = nn.Linear(20, 1)")


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        ("return torch.cat([self.conv(x), y], 1)", "self.conv = nn.Conv2d(16, 32, 3, padding=1)", "torch.randn(2, 16, 8, 8), torch.randn(2, 32, 8, 8)"),
        ("return torch.cat([self.conv(x), y], 3)", "self.conv = nn.Conv2d(16, 32, 3, padding=1)", "torch.randn(2, 16, 8, 8), torch.randn(2, 32, 8, 8)"),
        ("return self.conv(x)[:, :, :4] + y", "self.conv = nn.Conv2d(16, 32, 3, padding=1)", "torch.randn(2, 16, 8, 8), torch.randn(2, 32, 4, 8)"),
        ("return (x @ y)[:, :5].relu()", "", "torch.randn(2, 8, 64), torch.randn(2, 64, 32)"),
    ],
)
def test_a_kernel_has_all_sums_of_its_contraction_and_nothing_beside_them(forward: str, init: str, inputs: str) -> None:
    with pytest.raises(NotFusable, match="a part of the sums of a contraction, or has other values beside them"):
        program(forward, inputs, init, "x, y")
