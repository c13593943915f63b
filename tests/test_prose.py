"""The prose of pages, docstrings and comments: short sentences whose subject is a noun."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MOST_WORDS = 25  # words; limit of one sentence; the style asks for 20

#: Pages that other pages or programs generate: their sources are checked instead.
GENERATED = {"docs/cli.md", "docs/adversarial-cases.md"}

#: Pages that links may name before they exist. Each page that lands removes its entry.
NOT_YET_WRITTEN: set[str] = set()

#: Modules and packages whose docstrings and comments were rewritten. Each rewrite adds its entry.
REWRITTEN = (
    "docs/make_cases.py",
    "docs/make_cli.py",
    "kgen/__init__.py",
    "kgen/candidate.py",
    "kgen/cli",
    "kgen/cluster",
    "kgen/codegen",
    "kgen/compiler",
    "kgen/devices",
    "kgen/errors.py",
    "kgen/optimized",
    "kgen/paths.py",
    "kgen/problems",
    "kgen/protocol",
    "kgen/serve",
    "kgen/store",
    "kgen/templates",
    "kgen/evaluator",
    "kgen/tuning",
    "kgen/views",
    "benchmarks",
    "problems",
    "tests/adversarial/cases.py",
    "tests/adversarial/runner.py",
    "tests/adversarial/test_adversarial.py",
    "tests/conftest.py",
    "tests/running.py",
    "tests/templates/test_cuda_compiles.py",
    "tests/test_prose.py",
    "tests/tuning/test_kills.py",
)

_ABBREVIATIONS = re.compile(r"\b(et al|e\.g|i\.e|vs|approx)\.")
_TARGET = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
_CODE = re.compile(r"(:\w+:)?`+[^`]+`+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[A-Z\"'(*\d]|code\b|kgen\b)")
_LIST_ITEM = re.compile(r"\s*([-*+]|\d+\.)\s")
_ALIGNED = re.compile(r"\S {3,}\S")
_WORD = re.compile(r"[^\W_][\w'’./%+-]*")
_WRONG_SUBJECT = re.compile(r"\W*(what|who|whoever|whatever|whichever)\b(?!.*\?$)", re.IGNORECASE)
_DIRECTIVE = re.compile(r"(type: ignore|noqa|pragma|fmt:|!/)")


def sentences(paragraph: str) -> list[str]:
    """The sentences of one paragraph; code and links count as one word and as their text."""
    plain = _LINK.sub(r"\1", _CODE.sub("code", " ".join(paragraph.split())))
    return [s for s in _SENTENCE_END.split(_ABBREVIATIONS.sub(r"\1", plain)) if s]


def faults(paragraph: str) -> list[str]:
    """The sentences of ``paragraph`` that break a rule, each with the rule that it breaks."""
    found = []
    for sentence in sentences(paragraph):
        words = len(_WORD.findall(sentence))
        if words > MOST_WORDS:
            found.append(f"{words} words: {sentence}")
        if _WRONG_SUBJECT.match(sentence):
            found.append(f"subject: {sentence}")
    return found


def markdown_paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs of a page with the line where each begins, without code blocks, tables, headings and lists."""
    block: list[str] = []
    start, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        if fence or fenced or not line.strip() or line.startswith("#"):
            if block and _is_prose(block):
                yield start, "\n".join(block)
            block, fenced = [], fenced ^ fence
            continue
        if not block:
            start = number
        block.append(line)


def _is_prose(block: list[str]) -> bool:
    first = block[0]
    return not (first.startswith(("|", "<", "    ", "\b")) or _LIST_ITEM.match(first) or _ALIGNED.search(first))


def docstring_paragraphs(source: str) -> Iterator[tuple[int, str]]:
    """The paragraphs of all docstrings with the lines where the docstrings begin; indented blocks and lists are left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                line = node.body[0].lineno
                yield from ((line, p) for p in text.split("\n\n") if _is_prose(p.strip("\n").splitlines() or [""]))


def comment_paragraphs(source: str) -> Iterator[tuple[int, str]]:
    """Comments with their lines: comments on adjacent lines of their own are one paragraph."""
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    tokens = [t for t in tokens if not _DIRECTIVE.match(t.string.lstrip("#: "))]

    def block(item: tuple[int, tokenize.TokenInfo]) -> tuple[int, int]:
        index, token = item
        alone = not token.line[: token.start[1]].strip()
        return (token.start[0] - index, token.start[1]) if alone else (-token.start[0], 0)

    for _, group in groupby(enumerate(tokens), key=block):
        members = [token for _, token in group]
        yield members[0].start[0], "\n".join(token.string.lstrip("#: ") for token in members)


def _pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks/README.md", ROOT / "runs/README.md"]
    return [page for page in found if str(page.relative_to(ROOT)) not in GENERATED]


def _modules() -> list[Path]:
    found = (ROOT / entry for entry in REWRITTEN)
    return [file for path in found for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", _pages(), ids=_name)
def test_a_page_has_short_sentences(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not [f"{_name(page)}:{line}: {f}" for line, p in markdown_paragraphs(text) for f in faults(p)]


@pytest.mark.parametrize("module", _modules(), ids=_name)
def test_a_module_has_short_sentences(module: Path) -> None:
    source = module.read_text(encoding="utf-8")
    paragraphs = [*docstring_paragraphs(source), *comment_paragraphs(source)]
    assert not [f"{_name(module)}:{line}: {f}" for line, p in paragraphs for f in faults(p)]


@pytest.mark.parametrize("page", _pages(), ids=_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for target, fragment in _TARGET.findall(page.read_text(encoding="utf-8")):
        file = (page.parent / target).resolve() if target else page
        if "://" in target or _name(file) in NOT_YET_WRITTEN:
            continue
        if not file.exists() or (fragment and fragment.lstrip("#") not in _anchors(file)):
            broken.append(target + fragment)
    assert not broken


def _anchors(page: Path) -> set[str]:
    """The fragments by which links name the headings of ``page``."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_entries_name_files_that_exist() -> None:
    assert all((ROOT / entry).exists() for entry in REWRITTEN)


@pytest.mark.parametrize("sentence", ["What fails is kept.", "Who waits is told.", "One " + "word " * MOST_WORDS + "more."])
def test_a_fault_is_found(sentence: str) -> None:
    assert len(faults(f"A sentence. {sentence} Another one.")) == 1


def test_code_blocks_tables_and_lists_are_no_prose() -> None:
    page = "# What\nOne.\n\n```\nWhat fails\n```\n\n| What |\n| --- |\n\n- What fails\n  is kept\n\nTwo."
    assert [text for _, text in markdown_paragraphs(page)] == ["One.", "Two."]


def test_a_question_may_begin_with_what() -> None:
    assert not faults("What does it cost?")


def test_comments_on_adjacent_lines_are_one_paragraph() -> None:
    source = "# one\n# two\nx = 1  # three\ny = 2  # four\n"
    assert [text for _, text in comment_paragraphs(source)] == ["one\ntwo", "three", "four"]
