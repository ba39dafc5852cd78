"""The dashboard in a browser: what the window's width does to its tables, and how many changes it names."""

import json
import random

import pytest

import dashboard_records as made
from browser import Browser, make_page

VERSIONS = range(1, 14)


@pytest.fixture(scope="module")
def many_changes(tmp_path_factory):
    """Thirteen versions on two problems, of which a second record makes 14 kernels slower and 3 faster."""
    root = made.tree(tmp_path_factory.mktemp("many_changes"), 0)
    for day in (1, 2):
        rng = random.Random(day)
        changes = iter([1.3] * 14 + [0.7] * 3 + [1] * 9)
        results = [
            made.result(version, problem, 1e-5 * (next(changes) if day == 2 else 1), rng)
            for problem in made.PROBLEMS[:2]
            for version in VERSIONS
        ]
        made.write(root, f"{day}.json", made.record(f"2026-01-0{day}T00:00:00Z", f"{day:040x}", results))
    made.with_norm(root, baseline={"library": None, "reason": "there is none"})
    with_long_words(root)
    return make_page(root)


def with_long_words(root):
    """Adds names, a problem and a profile as long as the project's longest."""
    problem = "m32768 n128 k256 bias accumulate split128 bf16"
    result = made.result(
        2, problem, 1.3449e-2, random.Random(3), path="resample/upsample_backward", idea="vector_loads"
    )
    record = made.record("2026-02-02T00:00:00Z", "d" * 40, [result])
    made.write(root, "2026-02-02_ddddddd_resample-upsample-backward.json", record)
    profiles = root / "results" / "h200" / "profiles"
    profiles.mkdir()
    (kernel,) = made.PROFILE["kernels"]
    for version in (2, 3):
        kernels = [{**kernel, "name": f"toy_fprop_v{version:02d}_kernel<__nv_bfloat16, Tile<4, 64, 128>>"}]
        profile = {**made.PROFILE, "version": version, "kernels": kernels}
        (profiles / f"v{version}.json").write_text(json.dumps(profile))


class Layout(Browser):
    def at_width(self, width):
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.open()

    def columns_in_sight(self, table):
        """Whole cells of the first row, its heading aside."""
        return self.script(
            "const table = document.querySelector(arguments[0]);"
            "const right = table.closest('.scroll').getBoundingClientRect().right;"
            "return [...table.tBodies[0].rows[0].cells].slice(1)"
            ".filter((cell) => cell.getBoundingClientRect().right <= right + 1).length",
            table,
        )


@pytest.fixture
def layout(driver, many_changes):
    yield Layout(driver, many_changes)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_wide_window_has_all_versions(layout):
    layout.at_width(1400)
    assert layout.columns_in_sight(".heat") == len(VERSIONS)


def test_a_narrow_window_has_several_columns(layout):
    layout.at_width(390)
    assert layout.columns_in_sight(".heat") >= 3
    assert layout.columns_in_sight(".standing") >= 3


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_is_as_wide_as_the_window(layout, width):
    layout.at_width(width)
    widest = layout.script(
        "return [...document.querySelectorAll('body *')].filter((one) => !one.parentElement.closest('.scroll'))"
        ".map((one) => one.getBoundingClientRect().right).reduce((one, other) => Math.max(one, other))"
    )
    assert widest <= width
    assert layout.script("return document.documentElement.scrollWidth") <= width


def test_a_wide_window_has_all_columns(layout):
    layout.at_width(1400)
    boxes = layout.script(
        "return [...document.querySelectorAll('.scroll')].filter((box) => box.querySelector('table'))"
        ".map((box) => [box.parentElement.id || box.parentElement.className, box.scrollWidth - box.clientWidth])"
    )
    assert len(boxes) >= 7
    assert [box for box in boxes if box[1] > 0] == []


def test_a_narrow_window_keeps_the_first_column(layout):
    layout.at_width(390)
    moved = layout.script(
        "return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth).map((box) => {"
        "const left = () => box.querySelector('tbody th').getBoundingClientRect().left;"
        "const before = left(); box.scrollLeft = 100; return [box.scrollLeft, left() - before]; })"
    )
    assert moved
    assert [move for move in moved if abs(move[1]) > 3] == []  # cells of coloured tables have 3 pixels around them


def test_shares_stay_in_their_cells(layout):
    layout.at_width(1400)
    wider = layout.script(
        "return [...document.querySelectorAll('.heat a')].filter((cell) => {"
        "const words = document.createRange(); words.selectNodeContents(cell);"
        "const [of, within] = [words, cell].map((one) => one.getBoundingClientRect());"
        "return of.left < within.left || of.right > within.right || of.top < within.top"
        " || of.bottom > within.bottom;"
        "}).map((cell) => cell.textContent)"
    )
    assert "25 % of copy" in [cell.text.replace("\n", " ") for cell in layout.all(".heat a")]
    assert wider == []


def test_what_is_not_named_is_counted_by_verdict(layout):
    layout.open()
    items = layout.all(".alerts li")
    assert len(items) == 13
    assert items[-1].text == "and 2 SLOW, 3 FAST more, in the table of results"
