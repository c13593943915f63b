"""Rendered files: that they are Python that stands alone, read well, and keep to what other tools ask of them."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import lru_cache

import pytest
from models import NAMES, design, made, plainest, reference, source

from kgen.candidate import Candidate, Params
from kgen.codegen.registry import templates
from kgen.codegen.render import kernel_text
from kgen.codegen.template import FOLDER, Task
from kgen.compiler.fusion.fusion import plans
from kgen.devices.hardware import Hardware, cpu, for_arch
from kgen.errors import CaptureError, RenderError
from kgen.tuning.search import Point

#: KernelBench's strict static checks reject these anywhere in a file.
REFUSED = (r"\btry\s*:", r"\bexcept\s*:", r"\bexcept\s+\w+", r"\bpass\b")
DEVICES = {"cpu": cpu(), "cuda": for_arch("sm_90")}
#: The reference problems in modes in which they differ: two of them have no batch norm.
IN_MODES = [(NAMES[0], "eval"), *((NAMES[1], mode) for mode in ("train", "eval", "both")), (NAMES[2], "train"), (NAMES[3], "both")]
#: Files that are exhaustive: one for both modes has the kernels of each of them, and those of the other batch norm.
ALIKE = {(NAMES[1], "train"), (NAMES[1], "eval"), (NAMES[3], "both")}


@lru_cache(maxsize=None)
def rendered(name: str, mode: str, device: str) -> tuple[Candidate, ...]:
    """One candidate of each plan, and one for each of a covering set of the kernels' spaces of the first plan."""
    of = design(reference(name, mode, batch_size="64", out_features="1024"), DEVICES[device])
    found = plainest(of)
    for at, space in enumerate(of.choices[0].spaces):
        for params in space.covering_set():
            choice = [0] * len(of.choices[0].spaces)
            choice[at] = of.options[0].kernels[at].index(params)
            found.append(of.candidate(Point(0, tuple(choice))))
    return tuple(found)


def one(forward: str, inputs: str = "torch.randn(6, 20)", init: str = "", arguments: str = "x", *, mode: str = "eval",
        hardware: Hardware = DEVICES["cpu"]) -> Candidate:  # fmt: skip
    return plainest(design(made(source(forward, inputs, init, arguments), mode), hardware), 1)[0]


def of_text(text: str, mode: str = "eval") -> Candidate:
    return plainest(design(made(text, mode)), 1)[0]


every = pytest.mark.parametrize(
    ("name", "mode", "device"),
    [pytest.param(*of, device, marks=[pytest.mark.exhaustive] if of in ALIKE else []) for of in IN_MODES for device in DEVICES],
)


@every
def test_files_are_python(name: str, mode: str, device: str) -> None:
    for candidate in rendered(name, mode, device):
        compile(candidate.source, "<candidate>", "exec")


@every
def test_no_file_has_a_refused_word(name: str, mode: str, device: str) -> None:
    for candidate in rendered(name, mode, device):
        assert not [word for word in REFUSED if re.search(word, candidate.source)]


@every
def test_files_need_only_torch(name: str, mode: str, device: str) -> None:
    for candidate in rendered(name, mode, device):
        imports = [n for n in ast.walk(ast.parse(candidate.source)) if isinstance(n, (ast.Import, ast.ImportFrom))]
        modules = {a.name for n in imports if isinstance(n, ast.Import) for a in n.names}
        modules |= {n.module for n in imports if isinstance(n, ast.ImportFrom)}
        assert {m.split(".")[0] for m in modules} <= {"torch", "ctypes", "functools", "operator", "struct"}


@every
def test_lines_have_no_blanks_at_their_ends_and_no_tabs(name: str, mode: str, device: str) -> None:
    for candidate in rendered(name, mode, device):
        assert not re.search(r"[ \t]+$|\t", candidate.source, re.MULTILINE)
        assert "\n\n\n\n" not in candidate.source and candidate.source.endswith("\n")


@every
def test_distinct_points_are_distinct_files(name: str, mode: str, device: str) -> None:
    texts = {(c.plan, str(c.params)): c.id for c in rendered(name, mode, device)}
    assert len(set(texts.values())) == len(texts)


@every
def test_rendering_again_gives_the_same_text(name: str, mode: str, device: str) -> None:
    of = design(reference(name, mode, batch_size="64", out_features="1024"), DEVICES[device])
    assert plainest(of, 1)[0].source == rendered(name, mode, device)[0].source


@every
def test_name_of_the_extension_follows_its_source_and_flags(name: str, mode: str, device: str) -> None:
    built: dict[str, str] = {}
    for candidate in rendered(name, mode, device):
        literals = {
            n.targets[0].id: ast.unparse(n.value)
            for n in ast.parse(candidate.source).body
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
        }
        if "NAME" in literals:
            content = "".join(literals.get(k, "") for k in ("CPP_SOURCE", "CUDA_SOURCE", "CFLAGS", "CUDA_FLAGS"))
            assert built.setdefault(literals["NAME"], content) == content
    assert len(set(built.values())) == len(built)


@every
def test_files_hold_no_torch_header_and_no_path(name: str, mode: str, device: str) -> None:
    for candidate in rendered(name, mode, device):
        assert not re.search(r"#include <(torch|ATen|c10)|/home/|/tmp/", candidate.source)


def test_header_says_where_the_file_comes_from() -> None:
    text = rendered(NAMES[0], "eval", "cpu")[0].source
    header = ast.get_docstring(ast.parse(text))
    assert "linear_gelu_softmax(batch_size=64" in header and "linear -> gelu -> softmax" in header
    assert "Plan: contraction[linear, gelu] + inner_reduction[softmax]" in header and "k0.tile=" in header
    assert "linear_gelu_softmax.py (train and eval mode)" in header


def test_header_says_the_one_mode() -> None:
    assert "(eval mode)" in rendered(NAMES[1], "eval", "cpu")[0].source


@pytest.mark.parametrize("device", DEVICES)
def test_both_modes_have_kernels_of_their_own(device: str) -> None:
    candidate = rendered(NAMES[1], "both", device)[0]
    assert "train: " in candidate.plan and " / eval: " in candidate.plan
    assert any(k.startswith("train.k0.") for k in candidate.params) and any(
        k.startswith("eval.k0.") for k in candidate.params
    )


@pytest.mark.parametrize("device", DEVICES)
def test_running_statistics_are_made_in_float64_and_rounded_once(device: str) -> None:
    text = next(c.source for c in rendered(NAMES[3], "train", device) if "outer_reduction[" in c.plan)
    assert re.search(r"static_cast<float>\(\s*0\.9 \* ", text) and "0.9f" not in text


def test_control_has_no_kernel() -> None:
    control = rendered(NAMES[0], "eval", "cpu")
    (found,) = [c for c in control if c.control]
    assert found.kernels == 0 and "load_inline" not in found.source and "ctypes" not in found.source


def test_folded_weights_are_no_control() -> None:
    assert not next(c for c in rendered(NAMES[3], "eval", "cpu") if c.kernels == 0 and "fold" in c.plan).control


def test_gpu_kernels_are_for_the_device_alone() -> None:
    (found,) = [c for c in rendered(NAMES[0], "eval", "cuda") if c.plan == "linear(library) + inner_reduction[gelu, softmax]"]
    assert '"-gencode=arch=compute_90,code=sm_90"' in found.source


# What is taken over from the problem

PROBLEM = '''\
import math
from functools import partial

import torch
import torch.nn as nn

width = 20
unused = 7


def initial(n):
    # A comment that belongs to the definition.
    return partial(math.sqrt, n)()


class Block(nn.Module):
    def forward(self, x):
        return x * 2.0


class Model(nn.Module):
    """A docstring of the problem."""

    scale = 3.0

    def __init__(self, n=width):
        super(Model, self).__init__()
        self.block = Block()
        self.w = nn.Parameter(torch.ones(n) * initial(n) * self.scale)
        self.reset()

    def reset(self):
        nn.init.ones_(self.w)

    def helper(self, x):
        return x * self.w

    def forward(self, x):
        return self.helper(self.block(x))


def get_inputs():
    return [torch.randn(6, width)]
'''


def test_only_what_the_constructor_needs_is_taken_over() -> None:
    text = of_text(PROBLEM).source
    for kept in (
        "import math",
        "from functools import partial",
        "width = 20",
        "def initial(n):",
        "class Block",
        "def reset",
        "scale = 3.0",
    ):
        assert kept in text
    for left in ("unused", "def helper", "A docstring of the problem", "get_inputs"):
        assert left not in text


def test_statements_that_change_what_the_constructor_needs_are_taken_over() -> None:
    head = "SIZES = [1]\nSIZES.append(2)\nSIZES[0] = 5\ntorch.manual_seed(3)\n\n\nclass Model"
    text = of_text(source("return torch.exp(x)", init="self.sizes = SIZES").replace("class Model", head)).source
    assert "SIZES.append(2)" in text and "SIZES[0] = 5" in text and "manual_seed" not in text


def test_name_that_is_imported_where_it_can_be_is_taken_over() -> None:
    head = "if hasattr(torch, 'compile'):\n    import math as maths\nelse:\n    maths = None\n\n\nclass Model"
    text = of_text(source("return torch.exp(x)", init="self.pi = maths.pi").replace("class Model", head)).source
    assert "import math as maths" in text and "maths = None" in text


def test_model_is_called_model_new_throughout() -> None:
    text = of_text(PROBLEM).source
    assert "super(ModelNew, self).__init__()" in text and not re.search(r"\bModel\b", text)


def test_comments_of_definitions_are_taken_over() -> None:
    assert "# A comment that belongs to the definition." in of_text(PROBLEM).source


def test_weights_whose_names_are_no_identifiers_are_reached() -> None:
    text = one("return self.layers(x)", init="self.layers = nn.Sequential(nn.Linear(20, 20), nn.ReLU())").source
    assert 'getattr(self.layers, "0").weight' in text


@pytest.mark.parametrize("layers", ["nn.Sequential", "nn.ModuleList"])
def test_module_whose_weights_have_numbers_for_names_is_python(layers: str) -> None:
    forward = "for layer in self.layers:\n    x = layer(x)\nreturn x"
    of = design(made(source(forward, init=f"self.layers = {layers}([nn.Linear(20, 20)])".replace("l([", "l(*["))))
    for candidate in plainest(of):
        compile(candidate.source, "<candidate>", "exec")


def test_text_that_is_no_python_is_a_bug_of_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgen.codegen.render._wrapped", lambda head, parts: ['"""'])
    with pytest.raises(RenderError, match="does not parse"):
        one("return torch.exp(x)")


def test_kernel_that_ends_the_string_around_it_is_a_bug_of_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgen.codegen.render.kernel_text", lambda task, params: ('// """ then', kernel_text(task, params)[1]))
    with pytest.raises(RenderError, match="does not parse"):
        one("return torch.exp(x)")


@pytest.mark.parametrize("arguments", ["A, B", "input, b"])
def test_parameters_of_forward_keep_their_names(arguments: str) -> None:
    left, right = arguments.split(", ")
    found = one(f"return {left} @ {right}", "torch.randn(6, 20), torch.randn(20, 3)", arguments=arguments)
    assert f"def forward(self, {arguments}):" in found.source


def test_model_that_is_no_class_is_one_clear_line() -> None:
    text = source("return torch.exp(x)").replace("class Model", "class Net") + "\n\ndef Model():\n    return Net()\n"
    with pytest.raises(CaptureError, match="Model is not a class") as error:
        of_text(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("arguments", ["*xs", "first, *xs", "x, **more", "x, /, *, scale=2.0", "x, mask=None, flag=True"])
def test_signature_of_forward_is_kept(arguments: str) -> None:
    first = arguments.split(",")[0].replace("*xs", "xs[0]")
    assert f"def forward(self, {arguments}):" in one(f"return torch.exp({first})", arguments=arguments).source


def test_signature_of_a_forward_that_is_inherited_is_kept() -> None:
    text = source("return torch.exp(x)", arguments="x, scale=2.0").replace("class Model", "class Base")
    assert "def forward(self, x, scale=2.0):" in of_text(text + "\n\nclass Model(Base):\n    size = 3\n").source


def test_signature_of_an_imported_forward_is_kept() -> None:
    text = source("return x").replace("class Model", "class Net") + "\n\nModel = nn.ReLU\n"
    found = of_text(text).source
    assert "class ModelNew(nn.ReLU):" in found and "def forward(self, input):" in found


def test_text_of_forward_stands_apart_where_a_parameter_hides_a_name_of_it() -> None:
    found = one("return torch.exp(check)", arguments="check, y=2").source
    assert "return self._forward(check, y)" in found and "def _forward(self, check_value, y):" in found


@pytest.mark.parametrize("name", ["check", "launch", "dense", "NAME"])
def test_definition_that_hides_a_name_of_the_file_is_one_clear_line(name: str) -> None:
    text = source("return torch.exp(x)", init=f"self.n = {name}").replace("class Model", f"{name} = 3\n\n\nclass Model")
    with pytest.raises(CaptureError, match=f"{name} is a name that ModelNew needs"):
        of_text(text)


def test_default_of_an_argument_is_kept() -> None:
    assert "def forward(self, x, mask=None):" in one("return torch.exp(x)", arguments="x, mask=None").source


# The forward's text


def lines(candidate: Candidate) -> list[str]:
    (model,) = [n for n in ast.parse(candidate.source).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"]
    (run,) = [n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "_run"]
    return [ast.unparse(s) for s in run.body]


def test_library_calls_are_spelled_as_people_do() -> None:
    (control,) = [c for c in rendered(NAMES[0], "eval", "cpu") if c.control]
    assert lines(control) == [
        "linear = F.linear(x, self.linear.weight, self.linear.bias)",
        "gelu = F.gelu(linear)",
        "softmax = torch.softmax(gelu, 1)",
        "return softmax",
    ]


def test_a_long_forward_frees_what_no_later_step_uses() -> None:
    """Tensors of the same name as a function of the library, too. The module's own forward frees them when its layers return."""
    layers = "self.layers = nn.ModuleList(nn.Linear(20, 20) for _ in range(5))"
    forward = "first = x\nfor layer in self.layers:\n    x = torch.cat([torch.relu(layer(x)), first])[:6]\nreturn x * first"
    of = design(made(source(forward, init=layers)))
    control = next(c for c in plainest(of) if c.control)
    made_by, freed = ({n for line in lines(control) if (m := re.match(pattern, line)) for n in m[1].split(", ")} for pattern in (r"(\w+) = ", r"del (.*)"))
    assert len(made_by) > 12 and made_by - freed <= {"batch_size", lines(control)[-1].split()[-1], *_used(lines(control)[-2])}
    assert not any(re.search(rf"(?<![.\w]){name}\b", line) for number, of in enumerate(lines(control)) if of.startswith("del ")
                   for name in of[4:].split(", ") for line in lines(control)[number + 1 :])


def _used(line: str) -> set[str]:
    return set(re.findall(r"\w+", line))


def test_kernel_writes_over_the_contraction() -> None:
    assert lines(next(c for c in rendered(NAMES[0], "eval", "cpu") if c.plan.startswith("linear(library) + inner"))) == [
        "batch_size = x.shape[0]",
        "linear_weight, linear_bias = kept.tensors",
        "linear = F.linear(x, linear_weight, linear_bias)",
        "softmax = dense(linear, torch.float32)",
        "launch(_launch_kernels, softmax.data_ptr(), batch_size)",
        "return softmax",
    ]


def test_rows_of_a_flattened_batch_are_a_multiple() -> None:
    found = one("return torch.exp(x.flatten(0, 1))", "torch.randn(6, 5, 20)").source
    assert re.search(r"^    exp_kernel\(.*, 5 \* batch_size\);$", found, re.MULTILINE)


def test_inputs_are_made_dense_and_kernels_results_are_not() -> None:
    found = "\n".join(lines(one("return self.linear(x).relu() + y", "torch.randn(6, 12), torch.randn(6, 20)",
                                "self.linear = nn.Linear(12, 20)", "x, y")))  # fmt: skip
    assert "y_dense = dense(y, torch.float32)" in found and found.count("dense(") == 2  # the second is of what the library made


KERNELS_IN_A_ROW = "return torch.softmax(torch.cumsum(torch.softmax(x, 1), 1), 1), self.linear(torch.cumsum(x, 1).relu())"


def test_kernels_between_calls_of_the_library_are_launched_by_one_call() -> None:
    found = one(KERNELS_IN_A_ROW, init="self.linear = nn.Linear(20, 20)")
    runs = [line for line in lines(found) if line.startswith("launch(")]
    assert found.kernels > len(runs) and len(runs) <= 1 + found.plan.count("(library)")


def test_what_no_later_run_reads_shares_memory() -> None:
    """Of four kernels, each result but the last is read by the next one alone."""
    hardware = DEVICES["cpu"]
    of = design(made(source("for _ in range(4):\n    x = torch.cumsum(x, 1)\nreturn x")), hardware)
    found = next(c for c in plainest(of) if c.kernels == 4)
    allocations = [line for line in lines(found) if "new_empty" in line]
    assert len(allocations) == 3 and sum("memory" in line for line in allocations) == 1


def test_result_of_the_library_is_made_dense() -> None:
    found = one("return F.relu(self.conv(x))", "torch.randn(2, 3, 6, 6)", "self.conv = nn.ConvTranspose2d(3, 4, 3)")
    assert "dense(conv_transpose2d" in "\n".join(lines(found))


# Templates


def test_a_device_is_asked_once_what_does_not_change() -> None:
    """Each question takes microseconds of a launch."""
    asks = re.compile(r"cudaFuncSetAttribute|cudaDeviceGetAttribute|cudaOccupancy\w*")
    texts = {path: path.read_text() for path in (FOLDER / "cuda").rglob("*") if path.suffix in (".cuh", ".j2")}
    assert len(found := [path for path, text in texts.items() if asks.search(text)]) == 3
    for path in found:
        outside = re.sub(r"^static int ask_\w+\(.*?^}$", "", texts[path], flags=re.MULTILINE | re.DOTALL)
        assert not asks.search(outside) and "asked_once<ask_" in outside, path


@pytest.mark.parametrize("device", DEVICES)
def test_template_is_named_as_its_folder(device: str) -> None:
    found = templates(device)
    assert {"pointwise", "inner_reduction", "outer_reduction"} <= found.keys()
    assert all((FOLDER / device / name / "template.py").exists() and t.device_type == device for name, t in found.items())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_a_space_has_a_meaning(name: str, mode: str, device: str) -> None:
    of = design(reference(name, mode), DEVICES[device])
    for choice in of.choices:
        ((_, plan),) = choice.plans
        for kernel, space in zip(plan.kernels, choice.spaces):
            assert {axis.name for axis in space.axes} <= templates(device)[kernel.schedule].parameters.keys()


def test_reduction_over_a_stack_renders_with_every_parameter() -> None:
    text = source("return torch.logsumexp(torch.stack([x, y]), dim=0)", "torch.randn(4096, 64), torch.randn(4096, 64)", arguments="x, y")
    of = design(made(text), DEVICES["cuda"])
    ((_, plan),) = of.choices[0].plans
    (space,) = of.choices[0].spaces
    assert all(kernel_text(Task(plan, plan.kernels[0], DEVICES["cuda"]), params) for params in space.allowed())


def test_no_template_has_a_refused_word() -> None:
    files = [p for p in FOLDER.rglob("*") if p.suffix in (".j2", ".h", ".cuh")]
    assert files and not [(p.name, w) for p in files for w in REFUSED if re.search(w, p.read_text())]


@pytest.mark.parametrize(("params", "message"), [({"tile": 512, "lanes": 4}, "unexpected keyword argument 'lanes'"), ({}, "required .* argument: 'tile'")])
def test_parameters_of_another_version_are_an_error(params: Params, message: str) -> None:
    ((_, graph),) = design(made(source("return torch.sigmoid(x)"))).capture.graphs
    plan = next(p for p in plans(graph, tuple(templates("cpu").values())) if p.kernels)
    with pytest.raises(RenderError, match=f"template pointwise has other parameters: .*{message}"):
        kernel_text(Task(plan, plan.kernels[0], cpu()), params)


def test_rows_of_a_table_are_loaded_as_vectors() -> None:
    loaded = made(source("return self.table(x).sum(1)", "torch.randint(0, 9, (600, 5))", "self.table = nn.Embedding(9, 64)"))
    of = design(loaded, DEVICES["cuda"])
    number = next(n for n, option in enumerate(of.options) if "pointwise[embedding, sum]" in option.name)
    text = of.candidate(Point(number, of.options[number].plainest)).source
    assert text.count("load_vector<4>(table_weight_in + ") == 5


def test_name_missing_from_a_context_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    of = design(reference(NAMES[0], "eval"))
    plan = of.choices[0].plans[0][1]
    task = Task(plan, plan.kernels[-1], cpu())
    params = next(of.choices[0].spaces[-1].allowed())
    template = templates("cpu")[plan.kernels[-1].schedule]
    whole = template.render(template.schedule(task, **params))
    short = type(whole)({k: v for k, v in whole.context.items() if k != "cols"}, whole.arguments)
    monkeypatch.setattr(
        "kgen.codegen.render.template_for",
        lambda task: replace(template, render=lambda *_: short),
    )
    with pytest.raises(RenderError, match="'cols' is undefined"):
        kernel_text(task, params)
