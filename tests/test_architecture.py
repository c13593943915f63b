"""Who imports whom, read from the source: the one-way order that the design stands on."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

from kgen.devices.kinds import KINDS
from kgen.devices.runtime import RUNTIMES

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Allowed:
    """Packages from outside the standard library that a module may import: at its top, or only inside functions."""

    at_top: frozenset[str] = frozenset()
    in_functions: frozenset[str] = frozenset()


def allowed(at_top: str = "", in_functions: str = "") -> Allowed:
    return Allowed(frozenset(at_top.split()), frozenset(in_functions.split()))


#: By module or package; the most specific entry counts. What has none may import the standard library alone.
THIRD_PARTY = {
    "kgen": allowed(),
    "kgen.cli": allowed("click", in_functions="torch"),
    "kgen.cli.doctor": allowed(in_functions="torch"),
    "kgen.views": allowed("rich"),
    **{f"kgen.problems.{name}": allowed(in_functions="torch") for name in ("exported", "live", "problem", "spelling")},
    "kgen.compiler.capture": allowed(in_functions="torch"),
    "kgen.compiler.graph.complex_numbers": allowed(in_functions="torch"),
    "kgen.compiler.graph.source": allowed(in_functions="torch"),
    **{f"kgen.compiler.loops.{name}": allowed("sympy", in_functions="torch") for name in ("evaluation", "reductions")},
    **{f"kgen.compiler.{name}": allowed("sympy") for name in ("loops", "lower", "operators")},
    "kgen.devices": allowed(in_functions="torch"),
    "kgen.cluster": allowed("ray"),
    **{f"kgen.tuning.{name}": allowed(in_functions="jinja2") for name in ("own_template", "packages")},
    "kgen.tuning.search": allowed(in_functions="optuna"),
    "kgen.tuning.tasks.subject": allowed("torch"),
    "kgen.codegen": allowed(in_functions="jinja2"),
    "kgen.store": allowed("sqlalchemy", "alembic"),
    "kgen.serve": allowed("starlette uvicorn h11"),
    "kgen.agent.client": allowed(in_functions="openai"),
    "kgen.agent.prompt": allowed(in_functions="jinja2"),
    "kgen.views.report.browse": allowed(in_functions="datasette rich uvicorn"),
    "kgen.views.report.page": allowed(in_functions="jinja2"),
    "kgen.views.report.library": allowed(in_functions="vl_convert"),
    "kgen.views.report.highlight": allowed("pygments"),
    "kgen.store.migrations": allowed("sqlalchemy alembic"),
    "kgen.optimized.api": allowed(in_functions="torch"),
    "kgen.optimized": allowed("torch"),  # it is used in programs that have torch
    "kgen.evaluator": allowed("torch"),  # what the oracle and the workers are made of
    **{f"kgen.evaluator.runtime.{name}": allowed() for name in ("channel", "locks", "process", "sandbox")},
    "kgen.evaluator.candidates.build": allowed(in_functions="torch"),
}

#: Packages that stand above the compiler, the templates and the evaluator.
_ABOVE = ("kgen.tuning", "kgen.store", "kgen.cli", "kgen.views", "kgen.cluster", "kgen.optimized", "kgen.serve", "kgen.agent")

#: (importer, imported): never, not even inside a function. Names stand for packages too.
NEVER = [
    *((ground, "kgen") for ground in ("kgen.protocol", "kgen.candidate", "kgen.errors")),
    *(("kgen.compiler", above) for above in ("kgen.templates", "kgen.codegen", "kgen.devices", "kgen.evaluator", *_ABOVE)),
    *((written, above) for written in ("kgen.templates", "kgen.codegen") for above in ("kgen.evaluator", *_ABOVE)),
    ("kgen.codegen", "kgen.templates"),
    *(("kgen.evaluator", above) for above in ("kgen.compiler", "kgen.codegen", "kgen.templates", *_ABOVE)),
    *(("kgen.tuning.search", stage) for stage in ("kgen.compiler", "kgen.codegen", "kgen.templates", "kgen.store", "kgen.cli")),
    *(("kgen.store", stage) for stage in ("kgen.compiler", "kgen.codegen", "kgen.templates", "kgen.tuning", "kgen.evaluator")),
    ("kgen.tuning", "kgen.cli"),
    ("kgen.tuning", "kgen.cluster"),
    *((stage, above) for stage in ("kgen.tuning", "kgen.store", "kgen.views") for above in ("kgen.serve", "kgen.agent")),
    *((stage, above) for stage in ("kgen.tuning", "kgen.store", "kgen.views", "kgen.cli") for above in ("kgen.optimized",)),
    *(("kgen.cluster", stage) for stage in ("kgen.cli", "kgen.store", "kgen.views", "kgen.compiler", "kgen.codegen", "kgen.templates")),
    *(
        (plain, stage)
        for plain in ("kgen.errors", "kgen.candidate", "kgen.devices", "kgen.problems")
        for stage in ("kgen.evaluator", "kgen.tuning", "kgen.store", "kgen.cli")
    ),
]


MOST_LINES, MOST_METHODS = 600, 25  #: of a file and of a class


@dataclass(frozen=True)
class Import:
    """``importer`` imports ``imported`` (a dotted name), at the top of its file or inside a function."""

    importer: str
    imported: str
    at_top: bool
    line: int


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module_name(path): path for path in sorted((ROOT / "kgen").rglob("*.py"))}


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _statements(node: ast.AST, at_top: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Import statements below ``node``, and whether they run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, at_top
        elif not _is_type_checking(child):
            yield from _statements(child, at_top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _imports(module: str, path: Path) -> Iterator[Import]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for statement, at_top in _statements(_tree(path)):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        else:
            base = resolve_name("." * statement.level + (statement.module or ""), package)
            members = [f"{base}.{alias.name}" for alias in statement.names]
            names = [member if member in MODULES else base for member in members]
        for name in dict.fromkeys(names):
            yield Import(module, name, at_top, statement.lineno)


@cache
def imports() -> tuple[Import, ...]:
    """The imports of all modules, read when the first test asks: each process of the tests collects this file."""
    return tuple(found for module, path in MODULES.items() for found in _imports(module, path))


@cache
def _imports_of() -> dict[str, list[Import]]:
    """The imports of each module."""
    found: dict[str, list[Import]] = {name: [] for name in MODULES}
    for one in imports():
        found[one.importer].append(one)
    return found


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _allowed(module: str) -> Allowed:
    return THIRD_PARTY[max((name for name in THIRD_PARTY if _within(module, name)), key=len)]


def _third_party(imported: str) -> str | None:
    package = imported.partition(".")[0]
    return None if package == "kgen" or package in sys.stdlib_module_names else package


def _loaded_with(module: str) -> set[str]:
    """What importing ``module`` imports, directly or not: modules of kgen and packages from outside."""
    loaded: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in loaded:
            continue
        loaded.add(name)
        if name in MODULES:
            parents = [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
            tops = [i.imported for i in _imports_of()[name] if i.at_top]
            waiting += parents + [_third_party(imported) or imported for imported in tops]
    return loaded


def _lines(found: list[Import]) -> list[str]:
    return [f"{i.importer}:{i.line} imports {i.imported}" for i in found]


def test_modules_import_only_the_packages_that_they_may() -> None:
    wrong = []
    for found in imports():
        package = _third_party(found.imported)
        may = _allowed(found.importer)
        if package and package not in (may.at_top if found.at_top else may.at_top | may.in_functions):
            wrong.append(found)
    assert not _lines(wrong)


def test_what_a_worker_is_not_watched_for_is_never_imported_by_the_evaluator() -> None:
    from kgen.evaluator.strict.names import UNUSED

    assert {("kgen.evaluator", package) for package in UNUSED} <= set(NEVER)


@pytest.mark.parametrize(("importer", "imported"), NEVER)
def test_stage_does_not_reach_back(importer: str, imported: str) -> None:
    found = [i for i in imports() if _within(i.importer, importer) and _within(i.imported, imported)]
    assert not _lines([i for i in found if not _within(i.imported, importer)])


#: What a worker of kernel tasks is made of, beside the evaluator; named by text, and imported by nothing.
TASK_SUBJECT = "kgen.tuning.tasks.subject"
_WITH_TORCH = ("kgen.evaluator", "kgen.optimized", TASK_SUBJECT)


def test_subject_of_kernel_tasks_is_imported_only_in_its_worker() -> None:
    assert not _lines([i for i in imports() if i.imported == TASK_SUBJECT])


def test_torch_is_loaded_only_by_the_evaluator_and_in_programs_of_users() -> None:
    without = [name for name in MODULES if not any(_within(name, package) for package in _WITH_TORCH)]
    assert without and [name for name in without if "torch" in _loaded_with(name)] == []


def test_command_line_loads_only_click() -> None:
    loaded = _loaded_with("kgen.cli")
    assert {name for name in loaded if name not in MODULES and _third_party(name)} <= {"click"}


def test_ray_is_loaded_only_where_a_cluster_is_given() -> None:
    others = [name for name in MODULES if not _within(name, "kgen.cluster")]
    assert others and [name for name in others if "ray" in _loaded_with(name)] == []


@pytest.mark.parametrize("package", ["click", "rich", "kgen.cli"])
def test_conductor_knows_nothing_of_the_command_line(package: str) -> None:
    assert package not in _loaded_with("kgen.tuning.sweep")


def test_names_of_plans_are_read_only_from_what_older_versions_wrote() -> None:
    reading = {i.importer for i in imports() if i.imported == "kgen.store.named_plans"}
    assert reading == {"kgen.store.exchange", "kgen.store.migrations.versions.0005_plans"}


def _folder(module: str) -> str:
    """The folder of a module. Files of the package's own folder are rooms of their own: they are plain data and words."""
    folder = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    return module if folder == "kgen" else folder


def _check_circles(edges: dict[str, set[str]]) -> None:
    """Fail where a way along ``edges`` comes back."""
    settled: set[str] = set()

    def visit(at: str, way: tuple[str, ...]) -> None:
        assert at not in way, " -> ".join([*way[way.index(at) :], at])
        if at not in settled and at in edges:
            for to in sorted(edges[at]):
                visit(to, (*way, at))
            settled.add(at)

    for at in edges:
        visit(at, ())


def test_modules_do_not_import_each_other_in_circles() -> None:
    """Imports inside functions count as well: they hide a circle, and do not undo it."""
    edges: dict[str, set[str]] = {module: set() for module in MODULES}
    for found in imports():
        # A package that a module is in is loaded before it anyway.
        if found.imported in MODULES and not found.importer.startswith(found.imported + "."):
            edges[found.importer].add(found.imported)
    _check_circles(edges)


def test_folders_do_not_import_each_other_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for found in imports():
        if found.imported in MODULES and (here := _folder(found.importer)) != (there := _folder(found.imported)):
            edges.setdefault(here, set()).add(there)
    _check_circles(edges)


#: Folders of schedules: no other module may know their names. Migrations rename what older versions stored.
SCHEDULES = sorted(path.parent for path in (ROOT / "kgen" / "templates").glob("*/*/template.py"))
_KNOWING = (*SCHEDULES, ROOT / "kgen" / "store" / "migrations", ROOT / "kgen" / "store" / "renamed.py")

#: Files of the package in which a schedule's name could stand.
_TEXTS = {".py", ".j2", ".cuh", ".h", ".css", ".js", ".yaml"}


def _literals(tree: ast.AST) -> Iterator[str]:
    """The string constants of a module, without its docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def _names_of_schedules(path: Path) -> Iterator[str]:
    """The schedules that a file names: by a string constant, before brackets, in a path, or by a word that is no other."""
    text = path.read_text(encoding="utf-8")
    constants = set(_literals(_tree(path))) if path.suffix == ".py" else set()
    for name in sorted({folder.name for folder in SCHEDULES}):
        if name in constants or re.search(rf"\b{name}\b" if "_" in name else rf"\b{name}[\[/]", text):
            yield name


def test_no_schedule_is_named_outside_its_folder() -> None:
    files = [path for path in sorted((ROOT / "kgen").rglob("*")) if path.suffix in _TEXTS]
    outside = [path for path in files if not any(known in (path, *path.parents) for known in _KNOWING)]
    found = [f"{path.relative_to(ROOT)}: {name}" for path in outside for name in _names_of_schedules(path)]
    assert len(outside) > 100 and not found


def test_no_stage_branches_on_the_name_of_a_device() -> None:
    """A record or an entry of ``kgen/devices`` decides: another kind of device is another entry there."""
    names = set(KINDS)

    def decides(node: ast.AST) -> bool:
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [k for k in node.keys if k] if isinstance(node, ast.Dict) else []
        words = {e.value for p in parts for e in ast.walk(p) if isinstance(e, ast.Constant) and isinstance(e.value, str)} & names
        return bool(words) if isinstance(node, ast.Compare) else len(words) > 1

    files = [f for f in sorted((ROOT / "kgen").rglob("*.py")) if f.relative_to(ROOT / "kgen").parts[0] not in ("devices", "templates")]
    found = [f"{f.relative_to(ROOT)}:{n.lineno}" for f in files for n in ast.walk(_tree(f)) if decides(n)]
    assert found == []


#: Where a kind of device is at work; the rest of the evaluator and of tuning asks these.
_AT_WORK = {f"evaluator/runtime/{name}.py" for name in ("device", "driver", "fenced_clock", "launch_graph")}


def test_only_a_device_at_work_calls_its_driver() -> None:
    """A worker, its clock and its tasks ask :mod:`kgen.evaluator.runtime.device`, and not whether the device is CUDA."""
    folders = ("evaluator", "tuning", "optimized", "store", "serve")
    files = [f for folder in folders for f in sorted((ROOT / "kgen" / folder).rglob("*.py")) if str(f.relative_to(ROOT / "kgen")) not in _AT_WORK]
    found = [f"{f.relative_to(ROOT)}:{n.lineno}" for f in files for n in ast.walk(_tree(f))
             if isinstance(n, ast.Attribute) and n.attr in ("cuda", "_cuda", "is_cuda") and ast.unparse(n.value) != "torch.backends"]  # fmt: skip
    assert found == []


def test_every_kind_of_device_has_a_runtime_and_templates() -> None:
    assert RUNTIMES.keys() == KINDS.keys()
    assert all((ROOT / "kgen" / "templates" / name / "target.py").exists() for name in KINDS)


def test_tables_name_only_what_exists() -> None:
    named = set(THIRD_PARTY) | {name for pair in NEVER for name in pair}
    assert not named - set(MODULES)


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports each by its name alone, and refuses the whole run where two have one name."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def _larger(name: str, text: str) -> Iterator[str]:
    """The file ``name``, and its classes, where they are beyond the limits."""
    if text.count("\n") > MOST_LINES:
        yield name
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and sum(isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)) for x in node.body) > MOST_METHODS:
            yield f"{name}: {node.name}"


def test_files_and_classes_are_no_larger_than_a_reader_takes_in() -> None:
    found = {one for path in MODULES.values() for one in _larger(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))}
    assert not found


def test_too_many_lines_and_too_many_methods_are_found() -> None:
    text = "class C:\n" + "".join(f"    def f{n}(self) -> None: ...\n" for n in range(MOST_METHODS + 1)) + "\n" * MOST_LINES
    assert list(_larger("a.py", text)) == ["a.py", "a.py: C"]


MOST_COLUMNS = 120

def test_lines_are_short() -> None:
    """Of all texts: a formatter keeps those in Python, and nothing else the templates and what a report is made of."""
    texts = [path for path in sorted((ROOT / "kgen").rglob("*")) if path.suffix in _TEXTS | {".html"}]
    long = [f"{path.relative_to(ROOT)}:{number}" for path in texts
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1) if len(line) > MOST_COLUMNS]  # fmt: skip
    assert len(texts) > 500 and long == []
