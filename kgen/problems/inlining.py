"""Inlining: the definitions that a problem imports from files beside it, put in the place of the import.

A problem is then one text: its identity holds all of it, and what is rendered from it stands alone. Comments such as
``# net.py, line 12:`` say where each part comes from.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from kgen.errors import ProblemError
from kgen.problems import syntax
from kgen.problems.definitions import Definitions, first_line, given

_MARK = re.compile(r"# (.+\.py), line (\d+):")


def inlined(path: Path, source: str) -> str:
    """The source of a problem with its imports from files beside it replaced by the definitions themselves.

    Raises :class:`ProblemError` where a name is missing there, or where two files give the same name.
    """
    inliner = _Inliner(path.parent)
    text = inliner.text(path, source, ())
    if text != source:
        own = [n for n in syntax.parse(source).body if not isinstance(n, (ast.Import, ast.ImportFrom))]
        inliner.claim(set().union(*map(given, own)), path.name)
    return text


def place(path: str, source: str, line: int) -> str:
    """The file and line that a line of an inlined source comes from, as ``file:line``."""
    for number, text in zip(range(line - 1, 0, -1), reversed(source.splitlines()[: line - 1])):
        mark = _MARK.fullmatch(text)
        if mark:
            return f"{Path(path).parent / mark[1]}:{int(mark[2]) + line - number - 1}"
    return f"{path}:{line}"


class _Inliner:
    """Replaces imports of files in one folder, each definition once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.givers: dict[str, str] = {}  # of each name, the file that gives it
        self.done: set[tuple[str, str]] = set()  # file and line of each definition taken in

    def text(self, path: Path, source: str, above: tuple[Path, ...]) -> str:
        """The source of one file; ``above`` are the files that import it."""
        body = syntax.parse(source).body
        for node in body:
            if isinstance(node, ast.Import) and any(self._is_beside(a.name) for a in node.names):
                raise ProblemError(
                    f"{path}:{node.lineno}: `{ast.unparse(node)}` reads a file beside it: import names from it"
                )
        lines = source.splitlines()
        for node in reversed(body):
            if isinstance(node, ast.ImportFrom) and node.level < 2 and self._is_beside(node.module or ""):
                mark = f"# {self._name(path)}, line {node.end_lineno + 1}:"
                lines[node.lineno - 1 : node.end_lineno] = [*self._definitions(path, node, (path, *above)), mark]
        return "\n".join(lines) + "\n" if len(lines) != len(source.splitlines()) else source

    def _definitions(self, path: Path, node: ast.ImportFrom, above: tuple[Path, ...]) -> list[str]:
        """The lines that stand for one import."""
        file = self._file(node.module)
        if file in above:
            raise ProblemError(f"{path}:{node.lineno}: {file.name} imports itself")
        try:
            source = self.text(file, file.read_text(encoding="utf-8"), above)
        except (OSError, UnicodeDecodeError) as error:
            raise ProblemError(f"{file}: cannot be read: {error}") from error
        except SyntaxError as error:
            raise ProblemError(f"{file}:{error.lineno}: syntax error: {error.msg}") from error
        module = Definitions(source)
        every = set().union(*map(given, module.tree.body)) | module.imports.keys()
        names = every if node.names[0].name == "*" else {a.name for a in node.names}
        if names - every:
            raise ProblemError(f"{path}:{node.lineno}: {file.name} has no {sorted(names - every)[0]}")
        imports, statements = module.closure(names)
        found = [ast.unparse(n) for n in imports if ast.unparse(n) != "from __future__ import annotations"]
        own = source.splitlines()
        for statement in statements:
            first = first_line(statement)
            file_name, _, line = place(self._name(file), source, first).rpartition(":")
            if len(above) == 1:  # in the problem itself, each definition stands once
                if (file_name, line) in self.done:
                    continue
                self.done.add((file_name, line))
                self.claim(given(statement), file_name)
            found += [f"# {file_name}, line {line}:", *own[first - 1 : statement.end_lineno]]
        return found + [f"{a.asname} = {a.name}" for a in node.names if a.asname and a.asname != a.name]

    def claim(self, names: set[str], file: str) -> None:
        """Note that a file gives these names; raise :class:`ProblemError` where another one gives them too."""
        for name in sorted(names):
            if self.givers.setdefault(name, file) != file:
                raise ProblemError(
                    f"{self.folder / file}: {name} is defined here and in {self.givers[name]}: rename one of them"
                )

    def _is_beside(self, module: str) -> bool:
        """Whether a module is a file beside the problem, and none of Python's own."""
        return bool(module) and module.split(".")[0] not in sys.stdlib_module_names and self._file(module).is_file()

    def _file(self, module: str) -> Path:
        return self.folder.joinpath(*module.split(".")).with_suffix(".py")

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()
