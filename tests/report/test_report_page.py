"""The page in a real browser: loads without errors, responds to pointer and keys, runs no injected code."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers import browser
from helpers.report_cases import HOSTILE, enormous, fitted, grouped

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor
from gdm_dask.model import set_target
from gdm_dask.store.targets import TwoClasses

pytest.importorskip("selenium")

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # the first test may have to install the browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    try:
        browser.find_browser()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with browser.opened_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A report with every section."""
    from gdm_dask import stability_selection

    machine, (X, y) = fitted(), grouped()
    found = stability_selection(machine, X, y, n_repeats=3)
    path = tmp_path_factory.mktemp("small") / "report.html"
    other = fitted(n_features_to_select=5, tau=0.5)
    machine.report(path, store=(X, y), test=grouped(1), image_shape=(5, 8), compare=other, stability=found)
    return path


@pytest.fixture
def opened(page, small):
    browser.set_width(page, 1440)
    browser.set_scheme(page, "light")
    browser.load(page, small)
    assert browser.problems(page) == []
    yield page
    assert browser.problems(page) == []


def texts(page, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.toWellFormed())"
    return page.execute_script(script, selector)


def click(page, selector: str) -> None:
    page.execute_script(
        "const e = document.querySelector(arguments[0]); e.scrollIntoView({behavior: 'instant', block: 'center'}); "
        "e.focus(); e.click()",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_every_section_is_drawn_within_the_width(page, small: Path, width: int, scheme: str) -> None:
    browser.set_width(page, width)
    browser.set_scheme(page, scheme)
    browser.load(page, small)
    assert browser.problems(page) == []
    assert page.execute_script("return document.querySelectorAll('main > section[hidden]').length") == 0
    assert page.execute_script("return document.documentElement.scrollWidth") == width
    background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 22, 26)") is (scheme == "dark")


def test_text_has_contrast(page, small: Path) -> None:
    for scheme in ("light", "dark"):
        browser.set_width(page, 1440)
        browser.set_scheme(page, scheme)
        browser.load(page, small)
        colors = page.execute_script(
            "return ['ink', 'soft', 'accent', 'good', 'warn', 'paper', 'card', 'faint']"
            ".map(n => getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim())"
        )
        light = [luminance(color) for color in colors]
        for text in light[:5]:
            for ground in light[5:]:
                high, low = max(text, ground), min(text, ground)
                assert (high + 0.05) / (low + 0.05) >= 4.5


def luminance(color: str) -> float:
    channels = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_a_fit_with_k_tells_its_number_and_its_certificate(page, tmp_path: Path) -> None:
    machine = fitted(n_features_to_select=3, certify=True)
    assert not machine.converged_
    machine.certified_share_ = 0.87699
    machine.report(tmp_path / "report.html")
    browser.load(page, tmp_path / "report.html")
    (tiles,), (bounds,) = texts(page, "#glance .tiles"), texts(page, "#bounds")
    assert "stopped at 3 supports" in tiles
    assert "≥ 87.6%" in tiles
    assert "The supports explain at least 87.6% of what any 3 uncorrelated features can explain" in bounds
    assert "converged" not in tiles + bounds
    assert browser.problems(page) == []


@pytest.mark.parametrize("outputs", ["classes", "number", "numbers"])
def test_other_targets_show_what_supports_speak_for(page, tmp_path: Path, outputs: str) -> None:
    X, _ = grouped()
    y = {"classes": np.argmax(X[:, :3], axis=1), "number": X[:, 0] + X[:, 1], "numbers": X[:, :2]}[outputs]
    kind = GroupDiscoveryMachine if outputs == "classes" else GroupDiscoveryRegressor
    machine = kind(n_features_to_select=3).fit(X, y)
    machine.report(tmp_path / "report.html", store=(X, y), image_shape=(5, 8))
    browser.load(page, tmp_path / "report.html")
    (tiles,), (table,) = texts(page, "#glance .tiles"), texts(page, "#supports table")
    assert ("Accuracy, training" if outputs == "classes" else "R², training") in tiles
    sides, places = machine.target_.sides(machine.output_weights_)
    assert all(sides[place] in table for place in places)
    bars = "#supports tbody svg[aria-label*=': '] rect"
    n_bars = page.execute_script("return document.querySelectorAll(arguments[0]).length", bars)
    assert n_bars >= (0 if outputs == "number" else 3 * len(machine.coef_))
    # Two sides have a colour each; more have none, here and in the tiles.
    colours = "return document.querySelectorAll('.class.zero, .class.one').length"
    assert (page.execute_script(colours) > 0) == (outputs != "classes")
    assert ("what each speaks for" in texts(page, "#map")[0]) == (outputs != "classes")
    click(page, "#supports tbody th button")
    assert browser.problems(page) == []


def test_many_classes_take_one_line(page, tmp_path: Path) -> None:
    X, _ = grouped()
    y = np.argmax(X[:, :7], axis=1)
    GroupDiscoveryMachine(n_features_to_select=3).fit(X, y).report(tmp_path / "report.html", image_shape=(5, 8))
    browser.load(page, tmp_path / "report.html")
    counts = np.bincount(y)
    assert f"of 7 classes, {counts.min()} to {counts.max()} each" in texts(page, "#glance .tiles")[0]
    assert texts(page, "#images figcaption")[-1] == "supports bright, affiliated dim"
    assert browser.problems(page) == []


def test_theme_button_changes_the_theme(opened) -> None:
    dark = "return getComputedStyle(document.body).backgroundColor === 'rgb(20, 22, 26)'"
    assert not opened.execute_script(dark)
    click(opened, "#theme")
    assert opened.execute_script(dark)
    click(opened, "#theme")
    assert not opened.execute_script(dark)


def test_table_sorts(opened) -> None:
    weights = "#supports tbody td:nth-child(3)"

    def shown() -> list[float]:
        return [float(text.replace("\u2212", "-").replace(",", "")) for text in texts(opened, weights)]

    click(opened, "#supports thead th:nth-child(3) button")
    assert shown() == sorted(shown(), reverse=True)
    assert texts(opened, "#supports th[aria-sort=descending]") == ["Weight"]
    click(opened, "#supports thead th:nth-child(3) button")
    assert shown() == sorted(shown())
    assert texts(opened, "#supports th[aria-sort=ascending]") == ["Weight"]


def test_table_filters(page, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    machine = fitted([f"name {k}" for k in range(12)], n_features_to_select=10)
    machine.report(tmp_path / "report.html")
    browser.load(page, tmp_path / "report.html")
    field = page.find_element("css selector", "#supports input")
    field.send_keys("NAME 3")
    assert texts(page, "#supports tbody .name") == ["name 3"]
    assert texts(page, "#supports .count") == ["1 of 10 supports"]
    field.send_keys(" nothing")
    assert texts(page, "#supports tbody td") == ["Nothing matches the search."]
    field.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    assert len(texts(page, "#supports tbody tr")) == 10


def test_group_opens_and_closes_with_the_keyboard(opened) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.execute_script("document.querySelector('#supports tbody .open').focus()")
    opened.switch_to.active_element.send_keys(Keys.ENTER)
    assert opened.execute_script("return document.getElementById('group').open")
    size = int(texts(opened, "#supports tbody tr:first-child td")[-3])
    assert len(texts(opened, "#group tbody tr")) == size
    assert opened.execute_script("return document.activeElement.textContent") == "Close"
    opened.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not opened.execute_script("return document.getElementById('group').open")
    assert opened.execute_script("return document.activeElement.classList.contains('open')")


def test_map_answers_to_pointer_and_keys(opened) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    canvas = opened.find_element("css selector", "#map canvas")
    opened.execute_async_script(  # the page hides its tip when it scrolls: let that happen first
        "arguments[0].scrollIntoView({behavior: 'instant', block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(arguments[1]))",
        canvas,
    )
    ActionChains(opened).move_to_element_with_offset(canvas, 60, -60).perform()
    assert not opened.execute_script("return document.getElementById('tip').hidden")
    assert "\u03c1 = " in texts(opened, "#tip")[0]
    ActionChains(opened).move_to_element_with_offset(canvas, 60, 90).perform()
    before = texts(opened, "#map .chosen")
    canvas.send_keys(Keys.ARROW_UP)
    assert texts(opened, "#map .chosen") != before
    canvas.send_keys(Keys.ENTER)
    assert opened.execute_script("return document.getElementById('group').open")


def test_pixels_are_those_of_the_machine(opened) -> None:
    white = opened.execute_script(
        "const c = document.querySelectorAll('#images canvas')[1];"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return [...Array(c.width * c.height).keys()].filter(p => [0, 1, 2].every(i => d[4 * p + i] === 255))"
    )
    assert white == sorted(fitted().support_features_.tolist())


def test_charts_have_labels_and_sections_have_headings(opened) -> None:
    unnamed = (
        "return [...document.querySelectorAll('svg, canvas, input, select, button')].filter(e => e.checkVisibility()"
    )
    unnamed += " && !e.closest('[aria-hidden]') && !e.getAttribute('aria-label') && !e.labels?.length"
    unnamed += " && !e.textContent.trim()).length"
    assert opened.execute_script(unnamed) == 0
    missing = "return [...document.querySelectorAll('section')].filter(s => !document.getElementById(s.getAttribute('aria-labelledby'))?.textContent).length"  # noqa: E501
    assert opened.execute_script(missing) == 0


def test_hostile_names_are_text(page, tmp_path: Path) -> None:
    machine = fitted(HOSTILE, n_features_to_select=len(HOSTILE))
    set_target(machine, TwoClasses(("<i>no</i>", "</script><b>yes")))
    machine.report(tmp_path / "hostile.html", title="<script>window.hacked = 5</script> & more")
    for width in (375, 1440):
        browser.set_width(page, width)
        browser.load(page, tmp_path / "hostile.html")
        assert browser.problems(page) == []
        assert page.execute_script("return window.hacked === undefined")
        assert page.execute_script("return document.documentElement.scrollWidth") == width
    expected = {name.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for name in HOSTILE}
    shown = set(texts(page, "#supports tbody .name"))
    assert len(shown) == len(HOSTILE)
    assert len(expected & shown) >= len(HOSTILE) - 1  # the lone surrogate comes back as a replacement character
    assert page.execute_script("return document.querySelectorAll('main b, main i, main img, main script').length") == 0
    assert page.title == "<script>window.hacked = 5</script> & more"
    for k in range(1, len(HOSTILE) + 1):
        click(page, f"#supports tbody tr:nth-child({k}) .open")
        assert page.execute_script(
            "const d = document.getElementById('group'); return d.open && d.scrollWidth <= innerWidth"
        )
        page.execute_script("document.getElementById('group').close()")
    assert page.execute_script("return window.hacked === undefined")


def test_thousands_of_supports_and_a_huge_group(page, tmp_path: Path) -> None:
    path = tmp_path / "enormous.html"
    enormous().report(path)
    assert path.stat().st_size < 5_000_000
    browser.set_width(page, 1440)
    browser.load(page, path)  # warm: the browser itself, not the page, is slow to start
    assert browser.seconds(page, lambda: browser.load(page, path)) < 3
    assert browser.problems(page) == []
    for action in (
        "document.querySelector('#supports thead th:nth-child(8) button').click()",  # by the size of the group
        "const f = document.querySelector('#supports input'); f.value = 'w1'; f.dispatchEvent(new Event('input'))",
        "const f = document.querySelector('#supports input'); f.value = ''; f.dispatchEvent(new Event('input'))",
        "document.querySelector('#supports tbody .open').click()",
        "document.querySelector('#group thead button').click()",
        "const f = document.querySelector('#group input'); f.value = 'ff'; f.dispatchEvent(new Event('input'))",
    ):
        assert browser.seconds(page, partial(page.execute_script, action)) < 1, action
    assert texts(page, "#group h3") == ["100,000 members, the support included"]


def test_prints_without_controls(opened) -> None:
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        shown = "return ['nav', '.tools', '#theme'].filter(s => document.querySelector(s).checkVisibility())"
        assert opened.execute_script(shown) == []
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_prints_all_sections_as_soon_as_it_is_read(page, small: Path) -> None:
    """Converters to PDF print before the browser has drawn the later sections."""
    count = "document.querySelectorAll('section:not([hidden])').length"
    event = f"dispatchEvent(new Event('beforeprint')); window.printed = {count}"
    listen = {"source": f"addEventListener('DOMContentLoaded', () => {{ {event} }})"}
    script = page.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", listen)
    try:
        browser.load(page, small)
        printed, shown = page.execute_script(f"return [window.printed, {count}]")
        assert printed == shown > 5
        assert browser.problems(page) == []
    finally:
        page.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_the_page_says_what_correlation_and_a_group_are(page, tmp_path) -> None:
    fitted(measure="spearman", linkage="component").report(tmp_path / "report.html")
    browser.load(page, tmp_path / "report.html")
    assert browser.problems(page) == []
    terms = dict(zip(texts(page, "#about dt"), texts(page, "#about dd"), strict=True))
    assert terms["Correlation \N{GREEK SMALL LETTER RHO}"] == "Here Spearman's rank correlation."
    assert "a chain of such correlations" in terms["Affiliated"]


def test_the_page_marks_included_supports_and_variables(page, tmp_path) -> None:
    hostile = "<img src=x onerror='window.hacked = 1'>"
    machine = fitted(include=[39], groups_of={hostile: [0, 4]}, C=1.0)
    machine.report(tmp_path / "report.html")
    browser.load(page, tmp_path / "report.html")
    assert browser.problems(page) == []
    assert "Note" in texts(page, "#supports thead th")
    notes = texts(page, "#supports tbody tr td:nth-of-type(2)")
    assert sorted(filter(None, notes)) == [hostile, hostile, "included"]
    assert page.execute_script("return window.hacked") is None


def test_a_map_of_few_supports_shows_their_names(opened, page, tmp_path: Path) -> None:
    beside = (
        "const c = document.querySelector('#map canvas'), d = devicePixelRatio, n = arguments[0];"
        "const side = Math.round((c.height / d - 37) * d), left = Math.round(14 * d) + side;"
        "if (left >= c.width) return 0;"
        "return c.getContext('2d').getImageData(left, 0, c.width - left, c.height).data.filter(x => x).length"
    )
    assert opened.execute_script(beside) > 100
    many = enormous(31, 100)
    many.report(tmp_path / "many.html")
    browser.load(page, tmp_path / "many.html")
    assert page.execute_script(beside) == 0


def test_samples_are_counted_only_where_features_can_be_zero(page, tmp_path: Path) -> None:
    X, y = grouped()
    for kind, matrix in (("dense", X + 10.0), ("sparse", np.where(X > 0, X, 0.0))):
        GroupDiscoveryMachine(3).fit(matrix, y).report(tmp_path / f"{kind}.html")
        browser.load(page, tmp_path / f"{kind}.html")
        assert ("Samples with it" in texts(page, "#supports thead")[0]) == (kind == "sparse")


def test_many_classes_share_one_picture_of_the_pixels(page, tmp_path: Path) -> None:
    X, _ = grouped()
    y = np.argmax(X[:, :4], axis=1)
    machine = GroupDiscoveryMachine(n_features_to_select=3).fit(X, y)
    machine.report(tmp_path / "report.html", store=(X, y), image_shape=(5, 8))
    browser.load(page, tmp_path / "report.html")
    captions = texts(page, "#images figcaption")
    assert captions[:5] == ["mean of 0", "mean of 1", "mean of 2", "mean of 3", "mean of all classes"]
    assert captions[5:] == ["3 supports", captions[6], "supports bright, affiliated dim"]
    click(page, "#supports tbody th button")
    assert texts(page, "#group figcaption") == ["over the mean of all classes"]
    assert browser.problems(page) == []
