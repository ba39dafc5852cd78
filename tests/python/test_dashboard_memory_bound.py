"""The dashboard in a browser: a ladder that waits for memory beside one that waits for arithmetic."""

import json
import random
import re

import pytest

import dashboard_records as made
from browser import Browser, make_page

V02_TOP = f"#kernel={made.NORM}|2|n32+h64+w64+c64+g32+silu+bf16"
V02_TOP_OF_TOY = "#kernel=toy/fprop|2|n32+h64+w64+c64+k64+bf16"


def page_of(folder, count=3, **more):
    return make_page(made.with_norm(made.tree(folder, count), **more))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    root = made.with_norm(made.tree(tmp_path_factory.mktemp("both"), 3))
    (root / "dev" / "toy" / "shapes.txt").write_text("[unet]\nlow: n32 h8 w8 c256 k256\ntop: n32 h64 w64 c64 k64\n")
    return make_page(root)


class MemoryBound(Browser):
    def heads(self):
        self.settle()
        return self.script(
            "return [...document.querySelectorAll('#table thead th')]"
            ".filter((head) => !head.hidden).map((head) => head.textContent)"
        )

    def datasets(self):
        self.settle()
        made = self.script(
            "return Chart.getChart(document.querySelector('#limits-plot canvas')).data.datasets.map("
            "(set) => [set.label, set.data.map(({x, y, word}) => [x, y, word])])"
        )
        return [(label, points) for label, points in made]

    def labels_of_limits(self):
        return self.script(
            "const chart = Chart.getChart(document.querySelector('#limits-plot canvas'));"
            "const {label} = chart.options.plugins.tooltip.callbacks;"
            "return chart.data.datasets.flatMap((set) => set.data).filter((raw) => raw.series).map("
            "(raw) => label({raw, parsed: raw}))"
        )


@pytest.fixture
def norm(driver, both):
    return MemoryBound(driver, both)


def test_the_kernel_is_told_in_bytes(norm):
    norm.open(V02_TOP)
    facts = norm.text("#kernel-head .facts")
    assert re.search(r"rate\n30[67]\d GB/s\n75 % of a copy's 4100 GB/s", facts)
    assert "of what a streaming kernel takes\n88 %\na kernel that only moves them: 9.60 µs" in facts
    assert "TFLOP" not in facts
    assert f"{made.PYTORCH}\n16.8 µs\ntorch.compile channels_last" in facts
    assert "we are faster" in facts
    norm.open(V02_TOP.replace("|2|", "|1|"))
    assert "PyTorch 2.11.0 is faster" in norm.text("#kernel-head .facts")
    norm.open(V02_TOP_OF_TOY)
    assert "TFLOP/s" in norm.text("#kernel-head .facts")
    assert "cuDNN 9.19.0 is faster" in norm.text("#kernel-head .facts")
    assert "GB/s" not in norm.text("#kernel-head .facts")
    assert norm.errors() == []


def test_the_steps_are_told_in_bytes(norm):
    norm.open(V02_TOP)
    assert "beats the best plan of PyTorch 2.11.0." in norm.text("#ladder-lead")
    heads = [head.text for head in norm.all("#rungs thead th")]
    assert heads[4:8] == ["GB/s", "of copy", "of a streaming kernel", "step"]
    assert re.search(r"30[67]\d 75 % 88 % × 3\.", norm.all("#rungs tbody tr")[1].text)
    norm.open("#path=toy/fprop")
    assert [head.text for head in norm.all("#rungs thead th")][4:6] == ["TFLOP/s", "step"]


def test_the_picture_is_bandwidth_against_size(norm):
    norm.open(V02_TOP)
    drawn = dict(norm.datasets())
    assert [round(x, 1) for x, _, _ in drawn["v02 one pass"]] == [2.1, 6.3, 33.6]
    for _, rate, _ in drawn["v02 one pass"]:
        assert rate == pytest.approx(3075, abs=6)
    assert [word for _, _, word in drawn["v02 one pass"]] == [None, None, "v02"]
    assert {rate for _, rate, _ in drawn["copy bandwidth, measured"]} == {4100}
    assert [round(rate / 100) for _, rate, _ in drawn["streaming kernel"]] == [35, 35, 35]
    assert len(drawn["PyTorch 2.11.0"]) == 3
    bound = drawn["with an empty kernel's time on top"]
    for size, rate, _ in bound:
        assert rate == pytest.approx(size / (3e-6 + size / 4.1e6) / 1e3, abs=1)
    assert bound[0][1] < 350  # a megabyte goes by in less than an empty kernel's time
    assert "v02 n32 h64 w64 c64 g32 silu: 3" in "".join(norm.labels_of_limits())
    said = [label for label in norm.labels_of_limits() if "h64" in label]
    assert any("GB/s, 75 % of a copy, 88 % of a streaming kernel" in label for label in said), said
    assert any(label.startswith(made.PYTORCH) for label in said), said
    assert "waits for memory" in norm.text("#limits-lead")
    legend = norm.text("#limits-legend")
    assert "Copy bandwidth, measured by the timer's calibration: 4100 GB/s" in legend
    assert "An empty kernel takes 3.00 µs" in legend
    norm.open("#path=toy/fprop")
    assert "memory, measured" in dict(norm.datasets())
    assert "TFLOP/s" in norm.labels_of_limits()[0]


def test_the_table_shows_the_rates_that_it_has(norm):
    norm.open()
    rates = ["TFLOP/s", "GB/s", "copy, %", "streaming, %"]
    assert [head for head in norm.heads() if head in rates] == rates
    norm.choose("path", made.NORM)
    assert [head for head in norm.heads() if head in rates] == rates[1:]
    shown = norm.script(
        "return [...document.querySelectorAll('#table tbody tr')].filter("
        "(row) => !row.hidden).map((row) => [...row.cells].filter("
        "(cell) => !cell.hidden).length)"
    )
    assert shown == [len(norm.heads())] * 6
    norm.choose("path", "toy/fprop")
    assert [head for head in norm.heads() if head in rates] == rates[:1]


def test_downloads_hold_the_bytes(norm):
    norm.open(f"#path={made.NORM}")
    (text,) = norm.downloads("#json")
    entry = next(entry for entry in json.loads(text) if entry["problem"].startswith("n32 h64"))
    assert [entry[name] for name in ("bytes", "copy_bytes_per_s", "streaming_seconds")] == [33.6e6, 4.1e12, 9.6e-6]


def test_words_of_another_layer(norm):
    """Sets, names and the order of shapes come from the layer's own shapes.txt."""
    norm.open("#shape=set:unet&rows=shapes&path=" + made.NORM)
    assert len(norm.rows()) == 6
    assert [row.text.split()[0] for row in norm.all("#heat tbody th")] == ["bottom", "middle", "top"]
    norm.open()
    shapes = [option.text for option in norm.all("#filters [name=shape] option")]
    assert shapes[2:] == [
        "bottom n32 h8 w8 c256 g32 silu",
        "middle n32 h16 w16 c192 g32",
        "top n32 h64 w64 c64 g32 silu",
        "low n32 h8 w8 c256 k256",
        "top n32 h64 w64 c64 k64",
    ]
    labels = {cell.get_attribute("aria-label").split(",")[1] for cell in norm.all("#heat a")}
    assert {label.split("(")[1] for label in labels} == {"PyTorch 2.11.0)", "cuDNN 9.19.0)"}


@pytest.mark.parametrize(
    ("libraries", "plan", "name"),
    [
        ("cuDNN 9.19.0, PyTorch 2.11.0", "PyTorch compile nhwc", "PyTorch 2.11.0"),
        ("PyTorch 2.11.0, cuDNN 9.19.0", "eng4_k2=1 nhwc", "cuDNN 9.19.0"),
    ],
)
def test_of_several_libraries_the_one_whose_plan_won(norm, tmp_path, libraries, plan, name):
    times = made.times(16e-6, random.Random(1))
    times.update(warm_seconds=None)
    times["warm_samples"] = {name: [] for name in times["warm_samples"]}  # PyTorch's own timer is cold only
    baseline = {"library": libraries, "best_plan": plan, "heuristic_plan": plan, "verdict": None, "times": times}
    norm.open(V02_TOP, file=page_of(tmp_path, count=1, baseline={**baseline, "heuristic_times": None}))
    assert f"beats the best plan of {name}." in norm.text("#ladder-lead")
    assert f"({name})" in norm.all("#heat a")[0].get_attribute("aria-label")
    bars = norm.script(
        "return Chart.getChart(document.querySelector('#ladder-plot canvas')).data.datasets.map((set) => set.label)"
    )
    assert bars == ["cold"]
    assert norm.errors() == []


def test_a_look_is_first_at_arithmetic(norm, tmp_path):
    """3000 GB/s are no more than 500 TFLOP/s."""
    norm.open(file=page_of(tmp_path, count=1))
    assert "toy/fprop" in norm.text("#kernel-head")


def test_the_profile_to_make_is_of_the_kernel_in_sight(norm):
    norm.open(V02_TOP)
    assert "./ladder profile groupnorm/forward --version 2" in norm.text("#profile-panel")


def test_an_older_record_has_no_time_of_moving_its_bytes(norm, tmp_path):
    norm.open(V02_TOP, file=page_of(tmp_path, streaming=None))
    assert "75 % of a copy's" in norm.text("#kernel-head .facts")
    assert "streaming kernel" not in norm.text("#kernel-head .facts")
    assert [head.text for head in norm.all("#rungs thead th")][4:7] == ["GB/s", "of copy", "step"]
    assert "streaming kernel" not in dict(norm.datasets())
    assert "a streaming kernel" not in "".join(norm.labels_of_limits())
    assert norm.errors() == []


def test_without_a_baseline_it_stands_beside_a_copy(norm, tmp_path):
    nobody = {"library": None, "reason": "there is none"}
    norm.open(V02_TOP, file=page_of(tmp_path, baseline=nobody))
    cells = [cell.text for cell in norm.all("#heat a") if "copy" in cell.text]
    assert cells == ["25 % of copy", "75 % of copy"]
    assert "share of the copy bandwidth" in norm.one("#ladder-plot canvas").get_attribute("aria-label")
    assert norm.errors() == []
