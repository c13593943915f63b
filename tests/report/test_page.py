"""The page as text: whole, escaped, without anything from outside; and the command that writes it."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from histories import History, fill
from running import Home

from kgen.store import Database
from kgen.store.kernel_task import THE_LIBRARY, Variant
from kgen.store.tasks import StepRow
from kgen.views.report import highlight, page, sections
from kgen.views.report.sections import Section
from kgen.views.report.words import meaning


@pytest.fixture(scope="module")
def text(reported: Path) -> str:
    with Database.open(str(reported)) as database:
        return page.render(sections.collect(database), database.name)


def test_page_refers_to_nothing_outside(text: str) -> None:
    own = re.sub(r"<script type=\"module\">.*?</script>", "", text, count=1, flags=re.DOTALL)  # the plotting library
    assert re.findall(r"(?:src|href)=[\"'](?!#)", own) == []
    assert set(re.findall(r"https?://[^\"'\s]*", own)) <= {"https://vega.github.io/schema/vega-lite/v6.json"}


def test_page_may_load_nothing(text: str) -> None:
    assert "default-src 'none'" in text


def test_every_problem_has_its_part_and_its_line_in_the_overview(text: str) -> None:
    assert re.findall(r'<article class="part" id="(part-\d)"', text) == ["part-0", "part-1"]
    assert re.findall(r'<a href="#(part-\d)">(\w+)', text) == [("part-0", "made_up"), ("part-1", "another")]


def test_page_about_one_problem_has_no_overview(section: Section) -> None:
    assert 'class="overview"' not in page.render([section], "kgen.db")


def test_text_of_the_database_is_escaped(section: Section) -> None:
    text = page.render([section], "kgen.db")
    assert "too wrong: a &lt; &amp;" in text
    assert "</script> &" not in text


def test_rows_stand_in_the_page_as_json(section: Section) -> None:
    text = page.render([section], "kgen.db")
    found = re.search(r'<script type="application/json" id="page">(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])["sections"][0]
    assert {name for name, rows in data.items() if not rows} == {"beyond"}


def test_every_candidate_that_a_row_names_is_described_once(section: Section) -> None:
    data = page.Data.of(section, page.FULL)
    cells = [cell for plan in data.parameters for pair in plan.pairs for cell in pair.cells]
    named = {row.candidate for row in (*data.points, *data.tried, *data.steps, *cells)}
    assert named <= set(data.candidates)
    assert data.candidates[data.steps[0].candidate].params == "k0.block=128"


def test_many_problems_are_told_in_brief(section: Section) -> None:
    many, _, _ = page.render([section] * (page.MOST_IN_FULL + 1), "kgen.db").partition("<script")
    assert "<pre" not in many and "data-parameters" not in many
    assert many.count("<article") == page.MOST_IN_FULL + 1


def test_section_without_anything_right_makes_a_page(history: History) -> None:
    text = page.render(sections.collect(history.database), "kgen.db")
    assert "not judged in time: no candidate with a kernel of its own was judged" in text


def test_highlighted_source_is_the_source() -> None:
    source = 'a = r"""\n__global__ void f(float* x) { x[0] < 1.0f; }\n"""\n\nb = "<&>"\nc = r"""// again\n"""\n'
    shown = highlight.html(source)
    assert html.unescape(re.sub(r"</?span[^>]*>", "", shown)) == source


def test_kernels_are_highlighted_as_cuda() -> None:
    assert '<span class="kt">float</span>' in highlight.html('a = r"""\nfloat x;\n"""\n')


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("k0.block", "kernel 1: threads in a block"),
        ("k1.new_axis", "kernel 2: new_axis"),
        ("train.k0.vec", "kernel 1: elements in one load or store"),
        ("anything", "anything"),
    ],
)
def test_parameter_is_told_in_words(parameter: str, words: str) -> None:
    assert meaning(parameter) == words


def filled(home: Home) -> Home:
    with Database.open(str(home.db)) as database:
        fill(History(database))
    return home


def test_command_writes_the_page(tmp_path: Path) -> None:
    home = filled(Home(tmp_path))
    ended = home.typed("report", "made_up", "-o", "page.html")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("written: page.html (")
    assert "made_up" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nosuch",), "no problem 'nosuch'"),
        (("-D", "a=1"), "-D, --mode and --dtype need a PROBLEM"),
        (("--device", "cuda"), "nothing was swept on cuda"),
        (("-o", "nosuch/page.html"), "nosuch: no such folder"),
        (("-o", "."), "is a folder: name a file"),
    ],
)
def test_command_refuses_in_one_line(tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    ended = filled(Home(tmp_path)).typed("report", *arguments)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert line in ended.err
    assert not (tmp_path / "report.html").exists()


def test_page_of_a_network_has_equal_kernels_as_one_row_and_says_why_a_call_is_the_librarys(section: Section) -> None:
    variant = Variant.of("pointwise", {"block": 256})
    layer = StepRow(0, "k0", "a" * 64, "pointwise[relu]", variant, 0.5, 0.25, 0.25, 1e-7, "")
    call = StepRow(2, "linear", "b" * 64, "linear", THE_LIBRARY, 1.0, 0.5, None, None, "our kernels of it are <slower> here")
    text = page.render([replace(section, steps=(layer, replace(layer, number=1, name="k1"), call))], "kgen.db")
    (table,) = re.findall(r"<section class=\"card wide\" data-kernels>(.*?)</section>", text, re.DOTALL)
    rows = [re.sub(r"<[^>]+>|\s+", " ", row).split() for row in re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", table, re.DOTALL)]
    assert [row[:2] for row in rows] == [["linear", "(library)"], ["pointwise[relu]", "2"]]
    assert "50%" in rows[1] and "&lt;slower&gt;" in table


def test_page_of_a_small_problem_has_no_table_of_kernels(section: Section) -> None:
    assert not section.steps and "data-kernels>" not in page.render([section], "kgen.db")
