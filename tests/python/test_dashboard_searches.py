"""Searches on the dashboard: what is drawn, what is escaped, what cannot be read, and how it fits a window."""

import html
import re
import xml.etree.ElementTree as ElementTree

import pytest

import dashboard_records as made
from browser import Browser, make_page
from dashboard import main, searches
from search import log

PROBLEM = "n32 h64 w64 c64 k64 bf16"
EVIL = '"><script>document.title = "broken"</script><b>&amp;'


@pytest.fixture
def root(tmp_path):
    made.tree(tmp_path, 2)
    return tmp_path


def add(root, parent, us=None, verdict="PASS", idea="an idea", **fields):
    record = {"source": f"// {us}\n", "parent": parent, "us": us, "verdict": verdict, "idea": idea}
    if us:
        record |= {"problem": PROBLEM, "dtype": "bf16", "device": "NVIDIA H200", "baseline_us": 34, "ratio": 34 / us}
    return log.append("toy", "fprop", {**record, **fields}, root=root)


def grown(root, idea="an idea"):
    first = add(root, None, 40, idea=idea)
    add(root, first, None, "FAIL", idea=idea, reason=idea)
    second = add(root, first, 50)
    add(root, second, 20)
    add(root, second, 5, "UNTRUSTED")
    add(root, None, 7, problem="n1 c8 fp32", dtype="fp32")


def pictures(root):
    """The SVGs, parsed: XML would not let an unescaped word through."""
    shown = searches.shown(searches.read(root)[0])
    quoted = re.sub(r"\b(r|dy)=(-?\d+)", r'\1="\2"', shown)
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", quoted)]


def test_a_picture_for_each_group(root):
    grown(root)
    first, second = pictures(root)
    assert len(first.findall("circle")) == 5 and len(second.findall("circle")) == 1
    assert first.attrib["aria-label"] == "5 candidates, the fastest 20.0 µs"
    best = [circle.find("title").text for circle in first.findall("circle") if circle.attrib["class"] == "best"]
    assert best == ["1 PASS 40.0 µs: an idea", "3 PASS 50.0 µs: an idea", "4 PASS 20.0 µs: an idea"]
    lines = [line.attrib["class"] for line in first.findall("line") if "grid" != line.attrib["class"]]
    assert sorted(lines) == ["base", "best", "best", "failed", "failed"]


def test_slower_is_higher_and_later_further_right(root):
    grown(root)
    places = {
        circle.find("title").text.split()[0]: (float(circle.attrib["cx"].rstrip("%")), float(circle.attrib["cy"]))
        for circle in pictures(root)[0].findall("circle")
    }
    assert [places[name][0] for name in "1345"] == [0, 50, 100, 100]
    assert places["3"][1] < places["1"][1] < places["4"][1] < places["5"][1] < places["2"][1]


def test_words_are_escaped(root):
    grown(root, EVIL)
    page = make_page(root).read_text()
    assert EVIL not in page and page.count(html.escape(EVIL)) >= 4
    assert EVIL in "".join(pictures(root)[0].itertext())


def test_only_failures_are_a_table(root):
    add(root, None, None, "FAIL", reason="does not compile")
    shown = searches.shown(searches.read(root)[0])
    assert "<svg" not in shown and "does not compile" in shown


def test_a_damaged_line_is_named(root, capsys):
    grown(root)
    with open(log.path("toy", "fprop", root), "a", encoding="utf-8") as file:
        file.write("{torn\n")
    assert main.main(["--root", str(root), "--strict"]) == 1
    assert "not shown: search/toy-fprop.jsonl:7: not a node" in capsys.readouterr().err


@pytest.mark.parametrize("width", [1400, 390])
def test_in_a_browser(driver, root, width):
    page = Browser(driver, make_page(root))
    page.open()
    assert not page.one("#searches").is_displayed()  # there is none
    grown(root, EVIL)
    made.with_norm(root)
    make_page(root)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    page.cdp("Emulation.setDeviceMetricsOverride", size)
    try:
        page.open()
        assert page.errors() == [] and driver.title.startswith("Ladder")
        assert page.script("return document.documentElement.scrollWidth") <= width
        edges = page.script(
            "return [...document.querySelectorAll('.tree :is(circle, text)')].flatMap((one) => "
            "{ const box = one.getBoundingClientRect(); return [box.left, box.right]; })"
        )
        assert edges and 0 <= min(edges) and max(edges) <= width
        assert page.one(".search").is_displayed()
        page.open("#path=groupnorm/forward")
        assert page.hash() == "#path=groupnorm/forward" and not page.one(".search").is_displayed()
    finally:
        page.cdp("Emulation.clearDeviceMetricsOverride", {})
