"""The page in a real browser: it draws without a word on its console and without a request, and answers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from histories import APART, History
from playwright.sync_api import Browser, Page, expect, sync_playwright

from kgen.store import Database, effects
from kgen.views.report import page, sections

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

#: The figures of a section in which there is something to show for each.
FIGURES = ("error", "progress", "plans", "roofline", "failures", "rejections")


@dataclass
class Opened:
    """A page that was drawn, with what its browser told meanwhile."""

    page: Page
    told: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def figure(self, name: str) -> str:
        return f"#part-0 [data-figure={name}]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # The sandbox of Chromium does not start as root, as which CI runs; the page is our own.
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def file(reported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("page") / "report.html"
    with Database.open(str(reported)) as database, pytest.MonkeyPatch.context() as patch:
        patch.setattr(effects, "RANKED_FROM", 4)  # so that both plans show their parameters
        written.write_text(page.render(sections.collect(database), "kgen.db"), encoding="utf-8")
    return written


def open_page(browser: Browser, file: Path, size: str = "desktop", scheme: str = "light") -> Opened:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    opened = Opened(context.new_page())
    opened.page.on("console", lambda message: opened.told.append(message.text))
    opened.page.on("pageerror", lambda error: opened.told.append(str(error)))
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    opened.page.goto(file.as_uri())
    opened.page.wait_for_selector("html[data-drawn=yes]")
    return opened


Look = Callable[..., Opened]


@pytest.fixture(scope="module")
def look(browser: Browser, file: Path) -> Iterator[Look]:
    """Opens pages that tests only look at: one for each size and scheme."""
    pages: dict[tuple[str, str], Opened] = {}

    def look(size: str = "desktop", scheme: str = "light") -> Opened:
        if (size, scheme) not in pages:
            pages[size, scheme] = open_page(browser, file, size, scheme)
        return pages[size, scheme]

    yield look
    for opened in pages.values():
        opened.page.context.close()


@pytest.fixture
def shown(look: Look) -> Opened:
    return look()


@pytest.fixture(scope="module")
def opened(browser: Browser, file: Path) -> Iterator[Opened]:
    """A page that tests change, each another part of it, or one whose state it does not look at before."""
    found = open_page(browser, file)
    yield found
    found.page.context.close()


@pytest.mark.parametrize(
    ("size", "scheme"),
    [("desktop", "light"), ("desktop", "dark"), ("phone", "light"), pytest.param("phone", "dark", marks=pytest.mark.exhaustive)],
)
def test_page_draws_without_a_word_or_a_request(look: Look, file: Path, size: str, scheme: str) -> None:
    opened = look(size, scheme)
    assert (opened.told, opened.requests) == ([], [file.as_uri()])


@pytest.mark.parametrize("size", SIZES)
def test_page_is_no_wider_than_the_screen(look: Look, size: str) -> None:
    opened = look(size)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
    for box in opened.page.locator(".chart svg").all():
        bounds = box.bounding_box()
        assert bounds and bounds["x"] >= 0 and bounds["x"] + bounds["width"] <= SIZES[size][0]


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_drawn_with_marks(shown: Opened, name: str) -> None:
    marks = shown.page.locator(f"{shown.figure(name)} svg").locator(".role-mark path")
    assert marks.count() >= 1


def test_each_parameter_has_a_chart_and_two_of_them_a_heat_map(shown: Opened) -> None:
    assert shown.page.locator(f"{shown.figure('parameters')} svg").count() == 2
    assert shown.page.locator(f"{shown.figure('heat')} svg .mark-rect.role-mark path").count() == 9


@pytest.mark.parametrize("size", SIZES)
def test_hovering_over_a_point_shows_its_candidate_beside_it(look: Look, size: str) -> None:
    opened = look(size)
    best = opened.page.locator("#part-0 tr.best th code").inner_text()
    point = opened.page.locator(f"{opened.figure('error')} .mark-symbol.role-mark path[stroke='var(--best)']")
    point.scroll_into_view_if_needed()
    point.hover()
    tooltip = opened.page.locator("#vg-tooltip-element.visible")
    expect(tooltip).to_contain_text(best)
    expect(tooltip).to_contain_text("k0.block=512 k0.vec=4")
    expect(tooltip).to_contain_text("1.300x [1.250, 1.350]")
    expect(tooltip).to_be_in_viewport(ratio=1)
    at, shown = point.bounding_box(), tooltip.bounding_box()
    assert at and shown and abs(at["y"] - shown["y"]) < 300
    opened.page.mouse.move(0, 0)
    expect(tooltip).to_have_count(0)


def test_intervals_are_visible_on_a_phone_without_scrolling(look: Look) -> None:
    opened = look("phone")
    for cell in opened.page.locator("#part-0 td.interval").all():
        bounds = cell.bounding_box()
        assert bounds and bounds["x"] >= 0 and bounds["x"] + bounds["width"] <= SIZES["phone"][0]


def test_fast_and_slow_leaders_differ_in_colour_and_sign(shown: Opened) -> None:
    looks = {}
    for side in ("fast", "slow"):
        cell = shown.page.locator(f"#part-0 tr.{side}:not(.baseline) .speed").first
        style = "cell => [getComputedStyle(cell).color, getComputedStyle(cell, '::before').content]"
        looks[side] = cell.evaluate(style)
    assert looks["fast"][0] != looks["slow"][0]
    assert (looks["fast"][1], looks["slow"][1]) == ('"▲"', '"▼"')


@pytest.mark.parametrize("name", ["progress", "failures", "rejections"])
def test_ticks_of_a_count_are_whole_numbers_each_once(shown: Opened, name: str) -> None:
    axis = shown.page.locator(f"{shown.figure(name)} svg [aria-label^='X-axis']")
    labels = [int(label) for label in axis.locator(".role-axis-label text").all_text_contents()]
    assert len(labels) >= 2 and labels == sorted(set(labels))


@pytest.fixture(scope="module")
def slow(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """The page of a problem whose candidates are all much slower than PyTorch."""
    folder = tmp_path_factory.mktemp("slow")
    with Database.open(str(folder / "kgen.db")) as database:
        history = History(database)
        for place in range(10):
            history.add(0.2 + place / 100, block=place % 2, number=place)
        history.add(0.3, APART)
        history.make_final(history.add(0.35, text="best"), 0.3, 0.35, 0.4)
        history.add_baselines(3.0)
        text = page.render(sections.collect(database), "kgen.db")
    (folder / "report.html").write_text(text, encoding="utf-8")
    found = open_page(browser, folder / "report.html")
    yield found
    found.page.context.close()


@pytest.mark.parametrize("name", ["error", "progress", "plans", "parameters"])
def test_axes_hold_the_line_of_the_fastest_baseline(slow: Opened, name: str) -> None:
    for chart in slow.page.locator(f"{slow.figure(name)} svg").all():
        frame = chart.locator(".root > g > path.background").first.bounding_box()
        line = chart.locator(".mark-rule.role-mark line").first.bounding_box()
        assert frame and line
        assert frame["x"] - 1 <= line["x"] <= frame["x"] + frame["width"] + 1
        assert frame["y"] - 1 <= line["y"] <= frame["y"] + frame["height"] + 1


def test_page_says_that_the_best_is_slower(slow: Opened) -> None:
    expect(slow.page.locator(".tile.first.slow")).to_contain_text("slower than compile")


def column(opened: Opened, number: int) -> list[float]:
    cells = opened.page.locator(f"#part-0 .leaders tbody tr > :nth-child({number})")
    return [float(value) for value in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]


def test_click_on_a_heading_sorts_by_numbers_and_another_the_other_way_round(opened: Opened) -> None:
    heading = opened.page.locator("#part-0 .leaders thead th", has_text="Time")
    heading.get_by_role("button").click()
    falling = column(opened, 4)
    assert heading.get_attribute("aria-sort") == "descending"
    assert falling == sorted(falling, reverse=True) and len(set(falling)) > 5
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(opened, 4) == sorted(falling)


def test_click_on_a_heading_of_words_sorts_by_them(opened: Opened) -> None:
    opened.page.locator("#part-0 .leaders thead th", has_text="Plan").get_by_role("button").click()
    plans = opened.page.locator("#part-0 .leaders tbody .plan").all_inner_texts()
    assert plans == sorted(plans, key=str.lower) and len(set(plans)) > 1


def test_choice_of_a_plan_draws_its_parameters(opened: Opened) -> None:
    opened.page.locator("#part-0 [data-choose=plan]").select_option(value="1")
    expect(opened.page.locator(f"{opened.figure('parameters')} h4")).to_have_text([re.compile("k0.block")])
    expect(opened.page.locator(opened.figure("heat"))).to_have_text("This plan has one parameter only.")


def test_choice_of_parameters_names_the_axes_of_the_heat_map(opened: Opened) -> None:
    opened.page.locator("#part-0 [data-choose=plan]").select_option(value="0")
    expect(opened.page.locator(f"{opened.figure('heat')} svg")).to_have_count(1)
    first, second = (opened.page.locator(f"#part-0 [data-choose={name}]") for name in ("first", "second"))
    across, down = first.locator("option").all_inner_texts()
    first.select_option(down)
    titles = opened.page.locator(f"{opened.figure('heat')} svg .role-axis-title text")
    expect(titles).to_have_text([down, across])
    expect(second.locator("option:checked")).to_have_text(across)


def test_dark_page_has_light_text_and_is_printed_dark_on_white(look: Look) -> None:
    opened = look(scheme="dark")

    def brightness(selector: str, style: str) -> int:
        ask = "(node, style) => getComputedStyle(node)[style]"
        colour = opened.page.locator(selector).first.evaluate(ask, style)
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    label = f"{opened.figure('error')} .role-axis-title text"
    on_screen = brightness("body", "backgroundColor"), brightness(label, "fill")
    opened.page.emulate_media(media="print")
    on_paper = brightness("body", "backgroundColor"), brightness(label, "fill")
    opened.page.emulate_media(media="screen")
    assert on_screen[0] < 100 < 600 < on_screen[1]
    assert on_paper[1] < 100 < 700 < on_paper[0]
