"""Capture: what becomes of a forward, which dimensions follow the batch, and what is refused in one line."""

from __future__ import annotations

import pytest
import torch
from models import NAMES, graph, made, reference, source

from kgen.compiler.capture import capture as capturing
from kgen.compiler.capture.capture import capture
from kgen.compiler.graph.graph import Input, Node, OpGraph, Tensor, Weight
from kgen.compiler.graph.library_call import BatchSize, X, functional
from kgen.compiler.operators.table import OPS
from kgen.errors import CaptureError
from kgen.tuning.design import captured as quietly_captured


def captured(
    forward: str, inputs: str = "torch.randn(6, 20)", init: str = "", arguments: str = "x", mode: str = "eval"
) -> OpGraph:
    return graph(made(source(forward, inputs, init, arguments), mode))


def ops(of: OpGraph) -> list[str]:
    return [n.op for n in of.nodes]


def refusal(
    forward: str, inputs: str = "torch.randn(6, 20)", init: str = "", arguments: str = "x", mode: str = "eval"
) -> str:
    with pytest.raises(CaptureError) as error:
        captured(forward, inputs, init, arguments, mode)
    text = str(error.value)
    assert "\n" not in text
    return text


BATCH_NORM = "self.norm = nn.BatchNorm1d(20)"


# The reference problems


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (NAMES[0], ["linear", "gelu", "softmax"]),
        (NAMES[1], ["linear", "batch_norm", "mul", "softmax"]),
        (NAMES[2], ["linear", "mul", "add", "clamp", "logsumexp", "mish", "mul"]),
        (NAMES[3], ["linear", "mul", "batch_norm"]),
    ],
)
def test_reference_problems_are_captured_in_eval_mode(name: str, expected: list[str]) -> None:
    assert ops(graph(reference(name, "eval"))) == expected


@pytest.mark.parametrize("name", [NAMES[1], NAMES[3]])
def test_counter_of_batch_norm_is_counted_in_train_mode(name: str) -> None:
    found = graph(reference(name, "train"))
    assert [n.op for n in found.nodes if n.effect] == ["aten.add_.Tensor", "batch_norm"]


@pytest.mark.parametrize("name", [NAMES[0], NAMES[2]])
def test_modes_are_the_same_without_batch_norm(name: str) -> None:
    assert capture(reference(name, "train")).same


@pytest.mark.parametrize("mode", ["train", "eval", "both"])
def test_modes_differ_with_batch_norm(mode: str) -> None:
    assert not capture(reference(NAMES[1], mode)).same


@pytest.mark.parametrize(("forward", "init", "same", "exports", "mode"), [
    ("return x.relu()", "", True, 1, "eval"),
    ("return x.relu() if self.training else x", "", False, 2, "eval"),
    ("return self.drop(x)", "self.drop = nn.Dropout(0.5)", False, 2, "eval"),
    ("return self.drop(x)", "self.drop = nn.Dropout(0.5)", False, 1, "train"),
    ("return self.norm(x)", "self.norm = nn.BatchNorm1d(20)", False, 1, "train"),
    ("return self.norm(x)", "self.norm = nn.BatchNorm1d(20, track_running_stats=False)", True, 2, "train"),
    ("return x.relu() if self.training else F.relu(x)", "", True, 2, "eval"),
    ("return self.part.y(x)", "class Part(nn.Module):\n    def train(self, mode=True):\n        self.y = torch.relu if mode else torch.exp\n        return self\nself.part = Part()", False, 2, "eval"),
])  # fmt: skip
def test_the_other_mode_is_exported_where_training_is_read(
    forward: str, init: str, same: bool, exports: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    own = capturing._capture_mode
    monkeypatch.setattr(capturing, "_capture_mode", lambda loaded, mode, device: modes.append(mode) or own(loaded, mode, device))
    loaded = made(source(forward, init=init), mode)
    assert (capture(loaded).same, len(modes)) == (same, exports)
    assert "training" not in vars(torch.nn.Module)


def test_both_modes_are_two_graphs() -> None:
    assert [mode for mode, _ in capture(reference(NAMES[1], "both")).graphs] == ["train", "eval"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_every_operator_of_the_reference_problems_is_known(name: str, mode: str) -> None:
    found = graph(reference(name, mode))
    assert all(n.op in OPS or n.op == "aten.add_.Tensor" for n in found.nodes)


# Train and eval


def test_running_statistics_change_in_train_mode() -> None:
    (node,) = [n for n in captured("return self.norm(x)", init=BATCH_NORM, mode="train").nodes if n.op == "batch_norm"]
    assert node.effect and node["training"] and {"running_mean", "running_var"} <= set(node["roles"])


def test_batch_norm_in_eval_mode_changes_nothing() -> None:
    assert not any(n.effect for n in captured("return self.norm(x)", init=BATCH_NORM).nodes)


def test_batch_norm_without_running_statistics_takes_those_of_the_batch_in_eval_mode() -> None:
    (node,) = captured("return self.norm(x)", init="self.norm = nn.BatchNorm1d(20, track_running_stats=False)").nodes
    assert node["training"] and not node.effect


def test_cumulative_batch_norm_averages_by_its_counter_in_train_mode() -> None:
    found = captured("return self.norm(x)", init="self.norm = nn.BatchNorm1d(20, momentum=None)", mode="train")
    effects = [(n.op, n.inputs[0]) for n in found.nodes if n.effect]
    assert effects == [("aten.add_.Tensor", "norm_num_batches_tracked"), ("aten.lerp_.Tensor", "norm_running_mean"),
                       ("aten.lerp_.Tensor", "norm_running_var")]  # fmt: skip


def test_cumulative_batch_norm_works_in_eval_mode() -> None:
    assert ops(captured("return self.norm(x)", init="self.norm = nn.BatchNorm1d(20, momentum=None)")) == ["batch_norm"]


def test_dropout_is_an_identity_in_eval_mode() -> None:
    (node,) = captured("return F.dropout(x, 0.5, self.training)").nodes
    assert OPS[node.op].kind == "identity"


def test_dropout_stays_a_library_call_in_train_mode() -> None:
    assert ops(captured("return F.dropout(x, 0.5, self.training)", mode="train")) == ["aten.dropout.default"]


# The batch


def shapes(of: OpGraph) -> list[tuple[int | BatchSize, ...]]:
    return [n.type.sizes() for n in of.nodes]


def test_first_dimension_follows_the_batch() -> None:
    assert shapes(captured("return torch.tanh(x)")) == [(BatchSize(1), 20)]


def test_flattened_batch_is_a_multiple() -> None:
    found = captured("return torch.tanh(x.flatten(0, 1))", "torch.randn(6, 5, 20)")
    assert shapes(found)[-1] == (BatchSize(5), 20)


def test_view_is_spelled_with_the_batch() -> None:
    found = captured("return torch.tanh(x.view(x.shape[0] * x.shape[1], 20))", "torch.randn(6, 5, 20)")
    assert "[5 * batch_size, 20]" in str(found.nodes[0].call)


def test_dimension_that_is_as_large_as_the_batch_does_not_follow_it() -> None:
    assert shapes(captured("return torch.tanh(x)", "torch.randn(6, 6)")) == [(BatchSize(1), 6)]


def test_batch_of_one_follows() -> None:
    assert shapes(captured("return torch.tanh(x)", "torch.randn(1, 20)")) == [(BatchSize(1), 20)]


def test_operand_that_is_broadcast_along_the_batch_does_not_follow_it() -> None:
    inputs = "torch.rand(1, 9, 1) > 0.5, torch.randn(3, 9, 5), torch.randn(3, 9, 5)"
    found = captured("return torch.where(c, x, y)", inputs, arguments="c, x, y")
    assert (found.batch_input, found.type("c").sizes()) == ("x", (1, 9, 1))


@pytest.mark.parametrize("forward", ["table[at]", "table.index_select(0, at)", "F.embedding(at, table)"])
def test_rows_of_a_table_are_no_batch(forward: str) -> None:
    found = captured(f"return {forward} * 2", "torch.randn(9, 20), torch.randint(0, 9, (6,))", arguments="table, at")
    assert (found.batch_input, shapes(found)[-1]) == ("at", (BatchSize(1), 20))


def test_weights_follow_no_batch() -> None:
    found = captured("return x * self.w", "torch.randn(6, 6)", "self.w = nn.Parameter(torch.randn(6))")
    assert found.type("w").sizes() == (6,)


def test_inputs_of_the_same_batch_follow_together() -> None:
    found = captured("return x + y", "torch.randn(6, 20), torch.randn(6, 1)", arguments="x, y")
    assert [i.type.sizes() for i in found.inputs] == [(BatchSize(1), 20), (BatchSize(1), 1)]


def test_input_of_another_first_size_is_fixed() -> None:
    found = captured("return x @ y", "torch.randn(6, 20), torch.randn(20, 3)", arguments="x, y")
    assert found.type("y").sizes() == (20, 3)


def test_model_for_one_batch_size_is_fixed() -> None:
    found = captured("return x + self.w", init="self.w = nn.Parameter(torch.randn(6, 20))")
    assert found.batch_input is None and shapes(found) == [(6, 20)]


def test_size_that_is_no_multiple_fixes_the_batch() -> None:
    found = captured("return torch.cat([x, self.w])", init="self.w = nn.Parameter(torch.randn(2, 20))")
    assert found.batch_input is None


def test_first_of_two_square_matrices_follows_alone() -> None:
    found = captured("return A @ B", "torch.randn(8, 8), torch.randn(8, 8)", arguments="A, B")
    assert [i.type.sizes() for i in found.inputs] == [(BatchSize(1), 8), (8, 8)]


def test_batch_may_be_that_of_a_later_input() -> None:
    found = captured("return F.linear(x, w)", "torch.randn(4, 20), torch.randn(6, 20)", arguments="w, x")
    assert found.batch_input in ("w", "x") and found.batch is not None


def test_batch_of_an_input_behind_one_that_is_fixed() -> None:
    init = "self.b = nn.Parameter(torch.randn(4))"
    found = captured("return F.linear(x, w, self.b)", "torch.randn(4, 20), torch.randn(6, 20)", init, "w, x")
    assert (found.batch_input, found.batch) == ("x", 6)


def test_size_that_is_returned_follows_the_batch() -> None:
    assert captured("return x * 2.0, x.shape[0]").output == "({mul}, batch_size)"


def test_number_computed_from_the_batch_fixes_it() -> None:
    assert captured("return x * (1.0 / x.shape[0])").batch_input is None


def test_integer_that_is_the_batch_follows() -> None:
    assert "batch_size" in str(captured("return x / x.shape[0]").nodes[0].call)


# Writing in place


def test_in_place_on_a_value_is_the_operator_itself() -> None:
    found = captured("y = x + 1.0\ny.relu_()\nreturn y * 2.0")
    assert ops(found) == ["add", "relu", "mul"]
    assert found.nodes[2].inputs[0] == found.nodes[1].name


def test_value_written_in_place_is_returned_as_it_is_afterwards() -> None:
    found = captured("y = x + 1.0\ny.mul_(2.0)\nreturn y")
    assert found.returns == (found.nodes[1].name,)


def test_functional_with_inplace_is_the_operator_itself() -> None:
    assert ops(captured("return F.relu(torch.tanh(x), inplace=True)")) == ["tanh", "relu"]


def test_write_into_a_view_makes_a_new_value() -> None:
    found = captured("y = x + 1.0\ny[:, 0].zero_()\nreturn y")
    assert ops(found)[-1] == "overwrite" and not any(n.effect for n in found.nodes)


def test_write_into_the_only_view_that_is_read_afterwards_is_the_operator_itself() -> None:
    batch_norm = "y = F.batch_norm(x, self.mean, self.var)\n"
    init = "self.mean, self.var = torch.zeros(20), torch.ones(20)"
    found = captured(batch_norm + "v = y.view(-1)\nv.relu_()\nreturn v * 2.0", init=init)
    assert "batch_norm" in ops(found) and ops(found)[-2:] == ["relu", "mul"]


def test_write_into_a_view_of_what_is_read_afterwards_makes_new_values() -> None:
    for view, after in (("y.view(-1)", "y"), ("y.view(4, -1).t()", "y"), ("y.chunk(2)[0].view(-1)", "y"), ("y.view(-1)", "y.t()")):
        found = captured(f"y = x + 1.0\nv = {view}\nv.relu_()\nreturn v, {after} * 2.0")
        (mul,) = [n for n in found.nodes if n.op == "mul"]
        assert mul.inputs[0] != "add", (view, after)


def test_write_into_what_a_later_used_view_shows_makes_new_values() -> None:
    found = captured("y = x + 1.0\nv = y.view(-1)\ny.relu_()\nreturn v * 2.0")
    assert ops(found)[0] == "add" and "relu" in ops(found) and not any(n.effect for n in found.nodes)


def test_buffer_written_through_a_view_is_left_in_the_buffer() -> None:
    found = captured("self.b[:3] = x[0, :3]\nreturn x + self.b", init="self.register_buffer('b', torch.zeros(20))")
    (effect,) = [n for n in found.nodes if n.effect]
    assert effect.op == "aten.copy_.default" and effect.inputs[0] == "b"


def test_in_place_after_the_last_use_of_a_view_works() -> None:
    assert "relu" in ops(captured("y = x + 1.0\nv = y.view(-1) * 2.0\ny.relu_()\nreturn y, v"))


def test_buffer_written_in_place_is_an_effect() -> None:
    found = captured("self.calls.add_(1)\nreturn x * 2.0", init="self.register_buffer('calls', torch.zeros(()))")
    assert [n.effect for n in found.nodes] == [True, False]


# Weights


def test_weights_are_called_by_their_paths() -> None:
    found = captured("return self.linear(x)", init="self.linear = nn.Linear(20, 3)")
    assert [(w.name, w.path, w.buffer) for w in found.weights] == [
        ("linear_weight", "linear.weight", False),
        ("linear_bias", "linear.bias", False),
    ]


def test_unused_weights_are_not_in_the_graph() -> None:
    assert captured("return x * 2.0", init="self.linear = nn.Linear(20, 3)").weights == ()


def test_plain_tensor_attribute_is_a_weight() -> None:
    (weight,) = captured("return x * self.factor", init="self.factor = torch.rand(20)").weights
    assert (weight.path, weight.buffer) == ("factor", True)


def test_weights_whose_paths_come_to_the_same_name_are_told_apart() -> None:
    init = "self.lin = nn.Linear(20, 20)\nself.lin_weight = nn.Parameter(torch.randn(20))"
    found = captured("return self.lin(x) * self.lin_weight", init=init)
    assert len({w.name for w in found.weights}) == 3


def test_weight_called_like_an_operator_is_told_apart_from_it() -> None:
    found = captured("return x * self.mul", init="self.mul = nn.Parameter(torch.randn(20))")
    assert found.nodes[0].name not in {w.name for w in found.weights}


def test_weight_called_like_an_input_is_told_apart_from_it() -> None:
    found = captured("return scale * self.scale", init="self.scale = nn.Parameter(torch.randn(20))", arguments="scale")
    assert found.inputs[0].name not in {w.name for w in found.weights}


@pytest.mark.parametrize(
    ("path", "init"),
    [
        ("s[1]", "self.s = [torch.rand(20), torch.rand(20)]"),
        ("s['a.b']", "self.s = {'a.b': torch.rand(20)}"),
        ("_s", "self._s = torch.rand(20)"),
    ],
)
def test_plain_tensor_of_the_module_is_a_weight_with_the_way_to_it(path: str, init: str) -> None:
    found = captured(f"return x * self.{path}", init=init)
    assert [w.path for w in found.weights] == [path] and found.constants == ()


# Constants


@pytest.mark.parametrize(
    "number",
    ["torch.tensor(2.0)", "torch.tensor(2.0, device=x.device)", "(torch.tensor(1.0).to(x.device) * 2)", "torch.sqrt(torch.tensor(4.0))"],
)
def test_constant_number_is_a_number_of_the_operator(number: str) -> None:
    found = captured(f"return x * {number}")
    assert [(n.op, n.inputs, str(n.call)) for n in found.nodes] == [("mul", ("x", 2.0), "torch.mul({0}, torch.tensor(2.0))")]


def test_constant_vector_is_a_constant_of_the_graph() -> None:
    found = captured("return x * torch.tensor([2.0, float('inf')] * 10)")
    (constant,) = found.constants
    assert constant.type == Tensor((20,)) and constant.text.startswith('torch.tensor([2.0, float("inf"), 2.0')
    assert found.nodes[0].inputs == ("x", constant.name)


def test_constant_is_taken_as_it_is_when_it_is_used() -> None:
    found = captured("c = torch.tensor([1.0, 2.0])\ny = x[:, :2] * c\nc.add_(1.0)\nreturn y * c")
    assert [c.text for c in found.constants] == ["torch.tensor([1.0, 2.0])", "torch.tensor([2.0, 3.0])"]


def test_constant_of_integers_keeps_its_type() -> None:
    (constant,) = captured("return x[:, torch.tensor([3, 1])]").constants
    assert constant.type.dtype == "int64" and constant.text == "torch.tensor([3, 1])"


def test_random_numbers_are_no_constant() -> None:
    assert captured("return x + torch.rand(20)").constants == ()


def test_constant_of_many_numbers_is_refused_with_what_to_do() -> None:
    text = refusal("return x * torch.tensor(list(range(20000)))[:20].sum() * torch.tensor(list(range(20000))).reshape(20, -1).sum(1)")
    assert "register it as a buffer" in text


# Outputs and inputs


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        ("y", "{tanh}"),
        ("y, x", "({tanh}, {x})"),
        ("(y,)", "({tanh},)"),
        ("[y, y]", "[{tanh}, {tanh}]"),
        ("{'a': y, 'b': (x, 3)}", "{{'a': {tanh}, 'b': ({x}, 3)}}"),
        ("y, None", "({tanh}, None)"),
    ],
)
def test_container_of_the_outputs_is_restored(returned: str, output: str) -> None:
    assert captured(f"y = torch.tanh(x)\nreturn {returned}").output == output


@pytest.mark.parametrize("arguments", ["A, B", "input, F", "B, a"])
def test_inputs_are_called_as_the_parameters_of_forward(arguments: str) -> None:
    left, right = arguments.split(", ")
    found = captured(f"return torch.matmul({left}, {right})", "torch.randn(6, 20), torch.randn(20, 3)", arguments=arguments)
    assert [(i.name, i.source) for i in found.inputs] == [(left, left), (right, right)]
    assert found.nodes[0].inputs == (left, right)


def test_forward_that_returns_no_tensor_is_refused() -> None:
    assert "returns no tensor" in refusal("return 3")


def test_container_of_an_unknown_class_is_refused_with_those_that_are_known() -> None:
    said = refusal("class Out:\n    y = x\nreturn Out()")
    assert said.endswith("it returns an object of class Out: return a tuple, a list or a dict")


def test_number_that_forward_changes_and_uses_is_refused() -> None:
    said = refusal("self.calls += 1\nreturn x * self.calls", init="self.calls = 0")
    assert "computes with `self.calls`, a number that it changes" in said


def test_number_that_forward_changes_and_leaves_alone_is_captured() -> None:
    assert ops(captured("self.calls += 1\nreturn x * 2.0", init="self.calls = 0")) == ["mul"]


def test_one_bound_that_is_a_tensor_is_a_pointwise_operator() -> None:
    found = captured("return torch.clamp(x, max=torch.tensor(4.0)), torch.clamp(x, min=x[0])")
    assert [op for op in ops(found) if "clamp" in op] == ["clamp_max_tensor", "clamp_min_tensor"]
    (call,) = (str(node.call) for node in found.nodes if node.op == "clamp_max_tensor")
    assert "torch.full((), 4.0, device={device})" in call, "the library takes no bound of another device"


@pytest.mark.parametrize("init, new", [("self.s = [torch.zeros(20)]", "self.s[0] = x.mean(0)"), ("self.s = torch.zeros(1)", "self.s = x")])
def test_tensor_that_forward_replaces_by_no_buffer_could_is_refused(init: str, new: str) -> None:
    name = new.partition(" =")[0]
    said = refusal(f"y = x * {name}\n{new}\nreturn y", init=init)
    assert said.endswith(f"it computes with `{name}`, a tensor that it replaces: hold it in a buffer")


def test_tensor_that_forward_replaces_and_computes_with_is_written() -> None:
    found = captured("self.s = torch.tanh(x.mean(0) + self.s)\nreturn x * self.s", init="self.s = torch.zeros(20)")
    assert [w.path for w in found.weights] == ["s"] and "copy_" in " ".join(ops(found))


@pytest.mark.parametrize("write", ["self.s = self.s.to(x.device)", "self.s = self.s.contiguous()", "self.s.add_(1.0)"])
def test_tensor_that_forward_keeps_is_captured(write: str) -> None:
    assert "mul" in ops(captured(f"{write}\nreturn x * self.s", init="self.s = torch.zeros(20)"))


@pytest.mark.parametrize("write", ["x += 1", "x.relu_()", "x[:, 0] = 0.0", "x.view(-1).zero_()"])
def test_forward_that_writes_into_an_input_is_refused(write: str) -> None:
    assert "it writes into its input `x`" in refusal(f"{write}\nreturn x * 2.0")


@pytest.mark.parametrize("write", ["self.w.mul_(0.9)", "self.w[:4] = 1.0", "self.w.view(-1).zero_()"])
def test_forward_that_writes_into_a_parameter_is_refused(write: str) -> None:
    said = refusal(f"with torch.no_grad():\n    {write}\nreturn x * 2.0", init="self.w = nn.Parameter(torch.randn(20))")
    assert said.endswith("it writes into its parameter `w`: register it as a buffer")


def test_lazy_modules_are_refused() -> None:
    assert "holds lazy modules" in refusal("return self.f(x)", init="self.f = nn.LazyLinear(3)")


def test_scripted_modules_are_refused() -> None:
    assert "a scripted module, `f`" in refusal("return self.f(x)", init="self.f = torch.jit.script(nn.Linear(3, 3))")


@pytest.mark.parametrize("of", ["lambda z: (z**3).sum()", "lambda z: self.f(z).sum()"])
def test_derivatives_of_torch_func_are_refused(of: str) -> None:
    said = refusal(f"return torch.func.grad({of})(x)", init="self.f = nn.Linear(20, 3)")
    assert said.endswith("torch.export does not take the derivatives of torch.func")


def test_output_of_forward_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = made(source("print(x)\nreturn x * 2.0"), "eval")
    assert quietly_captured(loaded).graphs and capsys.readouterr() == ("", "")


def test_forward_that_takes_no_tensor_is_refused() -> None:
    assert "takes no tensor" in refusal("return self.w * 2.0", "3", "self.w = nn.Parameter(torch.randn(20))", "n")


def test_number_among_the_inputs_is_kept_with_its_value() -> None:
    assert captured("return x * k", "torch.randn(6, 20), 3.0", arguments="x, k").guards == (("k", 3.0),)


def test_tensors_in_containers_are_inputs_with_the_way_to_them() -> None:
    found = captured("return xs[0] * xs[1]['m']", "[torch.randn(6, 20), {'m': torch.randn(6, 20)}]", arguments="xs")
    assert [i.source for i in found.inputs] == ["xs[0]", "xs[1]['m']"]
    assert found.guards == (("len(xs)", 2), ("len(xs[1])", 1))


def test_any_number_of_arguments_is_the_number_given() -> None:
    found = captured("return rest[0] * rest[1]", "torch.randn(6, 20), torch.randn(6, 20)", arguments="*rest, **more")
    assert [i.source for i in found.inputs] == ["rest[0]", "rest[1]"]
    assert found.guards == (("len(rest)", 2), ("len(more)", 0))


def test_inputs_cost_no_memory() -> None:
    found = captured("return x.sum(1)", "torch.rand(2**30, 2**20) * 2.0 - 1.0")
    assert found.type("x").sizes() == (BatchSize(1), 2**20)


def test_weights_cost_no_memory() -> None:
    found = captured("return self.linear(x)", "torch.rand(6, 2**20)", "self.linear = nn.Linear(2**20, 2**20)")
    assert ops(found) == ["linear"]


def test_inputs_on_another_device_are_taken() -> None:
    assert captured("return x * 2.0", "torch.rand(6, 20, device='cuda')").type("x").sizes() == (BatchSize(1), 20)


def test_inputs_that_read_values_are_taken() -> None:
    assert captured("return x * 2.0", "torch.rand(6, int(torch.tensor([20]).max().item()))").type("x").shape == (6, 20)


def test_model_that_reads_values_is_taken() -> None:
    found = captured("return x * self.rate", init="self.rate = [r.item() for r in torch.linspace(0, 1, 3)][1]")
    assert found.nodes[0].inputs == ("x", 0.5)


def test_integer_input_is_taken() -> None:
    found = captured("return self.table(x)", "torch.zeros(6, 5, dtype=torch.int64)", "self.table = nn.Embedding(4, 20)")
    assert found.type("x").dtype == "int64" and found.nodes[0].op == "embedding"


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_other_floating_inputs_are_refused(dtype: str) -> None:
    text = refusal("return x * 2", f"torch.zeros(6, 20, dtype=torch.{dtype})")
    assert f"get_inputs() holds {dtype}" in text and "float32, bfloat16 and float16" in text


def test_other_floating_weights_are_refused() -> None:
    text = refusal(
        "return x.to(self.w.dtype) * self.w", init="self.w = nn.Parameter(torch.zeros(20, dtype=torch.float64))"
    )
    assert "Model holds float64" in text


def test_sparse_tensors_are_refused() -> None:
    text = refusal("return torch.sparse.mm(self.w, x)", init="self.register_buffer('w', torch.eye(6).to_sparse())")
    assert "Model holds a sparse tensor: kgen takes dense ones" in text


def test_complex_weights_are_captured() -> None:
    found = captured("return torch.view_as_real(x * self.w)", init="self.w = nn.Parameter(torch.zeros(20, dtype=torch.complex64))")
    assert found.type("w").dtype == "complex64"


@pytest.mark.parametrize("mask, op", [("x > 0", "masked_put"), ("x[:, 0] > 0", "aten.index_put.default")])
def test_one_value_where_a_mask_of_all_elements_holds_is_pointwise(mask: str, op: str) -> None:
    assert captured(f"y = x * 2\ny[{mask}] = 0.5\nreturn y").nodes[-1].op == op


def test_autocast_is_captured_as_the_casts_that_it_makes() -> None:
    found = captured("with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = x @ x.t()\nreturn y + x[:, :6]")
    assert [n.op for n in found.nodes if n.op == "cast"] == ["cast"] * 2
    assert next(n for n in found.nodes if n.op == "matmul").type.dtype == "bfloat16"


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
@pytest.mark.parametrize("region", ["cpu", "cuda"])
def test_autocast_acts_on_its_own_kind_of_device_alone(region: str, device_type: str) -> None:
    loaded = made(source(f"with torch.autocast('{region}', dtype=torch.bfloat16):\n    return x @ x.t()"))
    ((_, of),) = capture(loaded, device_type).graphs
    assert ("cast" in ops(of)) is (region == device_type)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_of_a_gpu_follows_its_own_lists_of_operators_without_a_gpu(dtype: str) -> None:
    forward = f"""
    with torch.autocast('cuda', dtype=torch.{dtype}):
        y = self.c(x)
        z = F.scaled_dot_product_attention(y, y, y)
        return y, F.softmax(y, -1), F.layer_norm(y, (8,)), y + x[:, :4, 1:-1, 1:-1], F.relu(z), y.exp()
    """
    loaded = made(source(forward, "torch.randn(2, 4, 10, 10)", "self.c = nn.Conv2d(4, 4, 3)"))
    ((_, of),) = capture(loaded, "cuda").graphs
    assert [of.type(name).dtype for name in of.returns] == [dtype, "float32", "float32", "float32", dtype, "float32"]


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_a_cast_behind_autocast_is_kept(device_type: str) -> None:
    loaded = made(source(f"with torch.autocast('{device_type}', dtype=torch.bfloat16):\n    y = x @ x.t()\nreturn y.float() * 2"))
    ((_, of),) = capture(loaded, device_type).graphs
    assert [(n.op, n.type.dtype) for n in of.nodes][-2:] == [("cast", "float32"), ("mul", "float32")]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_taken_with_casts_between_them(dtype: str) -> None:
    found = captured("return (x.float() * self.w).to(x.dtype)", f"torch.zeros(6, 20, dtype=torch.{dtype})",
                     "self.w = nn.Parameter(torch.zeros(20))")  # fmt: skip
    assert [n.op for n in found.nodes] == ["cast", "mul", "cast"]
    assert [n.type.dtype for n in found.nodes] == ["float32", "float32", dtype]


# What is not known


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.logcumsumexp(x, dim=1)",
        "return torch.sort(x, dim=1)[0]",
        "return F.gelu(x.double())",
        "return torch.clamp(x, min=2.0, max=1.0)",
        "return torch.gcd(x.long(), x.long())",
    ],
)
def test_what_is_not_known_stays_a_library_call(forward: str) -> None:
    assert captured(forward).nodes[-1].op not in OPS


def test_part_of_a_library_result_is_taken_by_its_index() -> None:
    assert captured("return torch.topk(x, 3)[0]").nodes[1].call == X[0]


@pytest.mark.parametrize(
    ("forward", "statement"),
    [
        ("return x if x.sum() > 0 else -x", "return x if x.sum() > 0 else -x"),
        ("y = x * 2.0\nfor _ in range(int(x.max())):\n    y = y + 1.0\nreturn y", "for _ in range(int(x.max())):"),
        ("return x[: int(x.sum())]", "return x[: int(x.sum())]"),
        ("assert x.max() > 0.0\nreturn x", "assert x.max() > 0.0"),
    ],
)
def test_forward_that_depends_on_values_is_one_line_with_the_statement(forward: str, statement: str) -> None:
    text = refusal(forward)
    line = source(forward).splitlines().index(next(s for s in source(forward).splitlines() if s.strip() == statement)) + 1
    assert text.startswith(f"made_up.py:{line}: forward cannot be captured at `{statement}`: ")
    assert "values" in text


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return x @ x", "RuntimeError"),
        ("return torch.from_numpy(x.numpy() * 2.0)", "RuntimeError"),
        ("return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))", "it calls cond"),
    ],
)
def test_what_cannot_be_captured_is_one_line_with_the_reason(forward: str, reason: str) -> None:
    assert reason in refusal(forward)


# The graph itself


def chain(*names: str) -> OpGraph:
    """relu after relu, the last one returned."""
    nodes = tuple(Node(b, "relu", (a,), Tensor((2, 3)), functional("relu", X)) for a, b in zip(("x", *names), names))
    return OpGraph(
        (Input("x", Tensor((2, 3))),), (Weight("w", Tensor((3,)), "w"),), nodes, names[-1:], f"{{{names[-1]}}}"
    )


def test_dropped_node_is_replaced_where_it_was_used() -> None:
    found = chain("a", "b", "c").without("b", "a")
    assert [(n.name, n.inputs) for n in found.nodes] == [("a", ("x",)), ("c", ("a",))]


def test_dropped_node_is_replaced_where_it_was_returned() -> None:
    found = chain("a", "b").without("b", "a")
    assert (found.returns, found.output) == (("a",), "{a}")


def test_pruning_drops_what_nothing_uses() -> None:
    found = chain("a", "b").without("b", "x").pruned()
    assert found.nodes == () and found.weights == ()


def test_pruning_keeps_effects() -> None:
    start = chain("a", "b")
    effect = Node("e", "aten.add_.Tensor", ("w",), Tensor((3,)), X.method("add_", 1), effect=True)
    found = OpGraph(start.inputs, start.weights, (*start.nodes, effect), start.returns, start.output).pruned()
    assert "e" in {n.name for n in found.nodes} and found.weights == start.weights


def test_new_name_is_not_taken() -> None:
    assert chain("a", "b").fresh("a") == "a_1"


# Where outputs lie in memory


@pytest.mark.parametrize(
    ("forward", "inputs", "orders"),
    [("return x.relu()", "torch.randn(4, 5, 6)", ()), ("return x.transpose(1, 2).relu()", "torch.randn(4, 5, 6)", ((0, 2, 1),)),
     ("return x.relu(), x.t() + 1.0", "torch.randn(4, 5)", ((), (1, 0))), ("return x.t() + 1.0", "torch.randn(4, 1)", ()),
     ("return x * 2.0", "torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)", ((0, 2, 3, 1),)),
     ("return x.relu().expand(3, 4, 5)", "torch.randn(4, 5)", ())],
)  # fmt: skip
def test_order_of_an_outputs_dimensions_is_eagers(forward: str, inputs: str, orders: tuple[tuple[int, ...], ...]) -> None:
    assert graph(made(source(forward, inputs))).orders == orders


def test_order_that_a_device_shows_takes_the_place_of_the_captured_one() -> None:
    found = capture(made(source("return x.t() + 1.0, x + 1.0", "torch.randn(4, 5)")))
    ((_, laid_out),) = found.laid_out({"eval": [((5, 4), (4, 1)), ((4, 5), (1, 4))]}).graphs
    assert found.graphs[0][1].orders == ((1, 0), ()) and laid_out.orders == ((), (1, 0))
    assert found.laid_out({"eval": [((5, 4), (1, 5)), ((4, 5), (5, 1))]}) == found == found.laid_out({})


@pytest.mark.parametrize(("of_one", "output"), [
    (((1, 5, 6), (30, 6, 1)), "{sin} if batch_size > 1 else {sin}.contiguous()"), (((1, 5, 6), (30, 1, 5)), "{sin}"),
    (((1, 5, 6), (7, 1, 5)), "{sin}"),
])  # fmt: skip
def test_batch_of_one_row_is_put_into_the_order_that_pytorch_has_for_it(of_one: tuple[tuple[int, ...], ...], output: str) -> None:
    found = capture(made(source("return x.transpose(1, 2).sin()", "torch.randn(4, 6, 5)")))
    ((_, laid_out),) = found.laid_out({"eval": [((4, 5, 6), (30, 1, 5), *of_one)]}).graphs
    assert laid_out.output == output and laid_out.orders == ((0, 2, 1),)


def test_one_row_among_several_outputs_is_put_into_another_order_than_its_own() -> None:
    found = capture(made(source("return x.sin(), [x.cos()]", "torch.randn(4, 5, 6)")))
    layouts = [((4, 5, 6), (30, 6, 1), (1, 5, 6), (30, 1, 5)), ((4, 5, 6), (30, 6, 1), (1, 5, 6), (30, 6, 1))]
    ((_, laid_out),) = found.laid_out({"eval": layouts}).graphs
    assert laid_out.output == "(({sin} if batch_size > 1 else {sin}.permute(0, 2, 1).contiguous().permute(0, 2, 1)), [{cos}])"


# The paths of eager PyTorch

ENCODER = "self.f = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)"
TAKES_PART = "scores = torch.ones(5, 5).tril()\nmask = None if not torch.compiler.is_exporting() and bool(scores[0, 0] == 1) else scores\n"


@pytest.mark.parametrize(("forward", "inputs", "init", "mode", "expected"), [
    ("return self.f(x)", "torch.randn(2, 5, 16)", ENCODER, "eval", ["aten._transformer_encoder_layer_fwd.default"]),
    ("return self.f(x, x, x, need_weights=False)[0]", "torch.randn(2, 5, 16)", "self.f = nn.MultiheadAttention(16, 2, batch_first=True)", "eval",
     ["aten._native_multi_head_attention.default", "_operator.getitem"]),
    (f"{TAKES_PART}return x if mask is None else x + mask", "torch.randn(2, 5, 5)", "", "eval", []),
])  # fmt: skip
def test_capture_takes_the_path_of_eager(forward: str, inputs: str, init: str, mode: str, expected: list[str]) -> None:
    assert ops(captured(forward, inputs, init, mode=mode)) == expected


def test_capture_exports_what_eager_paths_cannot() -> None:
    forward = "if not torch.compiler.is_compiling() and bool((x > 0).all()):\n    return x\nreturn x * 2.0"
    assert ops(captured(forward)) == ["mul"]


def test_a_fused_layer_keeps_its_parts() -> None:
    (layer,) = captured("return self.f(x)", "torch.randn(2, 5, 16)", ENCODER).nodes
    assert layer.parts is not None
    of = [part.op for part in layer.parts.nodes]
    assert of.count("linear") == 4 and of.count("layer_norm") == 2 and of.count("aten.scaled_dot_product_attention.default") == 1
