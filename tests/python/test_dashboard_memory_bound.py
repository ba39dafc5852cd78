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
    def rung_heads(self):
        return [head.text for head in self.all(".of-ladder:not([hidden]) thead th")]

    def datasets(self):
        self.settle()
        """{name: [(x, y, text)]} of the traces of the roofline."""
        made = self.script(
            "return document.querySelector('#limits-plot').data.map("
            "({name, x, y, text}) => [name, [...x].map((at, i) => [at, y[i], text?.[i]])])"
        )
        return {name: sorted(points) for name, points in made}


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
    heads = norm.rung_heads()
    assert heads[4:8] == ["GB/s", "of copy", "of a streaming kernel", "step"]
    assert re.search(r"30[67]\d 75 % 88 % × 3\.", norm.all(".of-ladder:not([hidden]) tbody tr")[1].text)
    norm.open("#path=toy/fprop")
    assert norm.rung_heads()[4:6] == ["TFLOP/s", "step"]


def test_the_picture_is_bandwidth_against_size(norm):
    norm.open(V02_TOP)
    drawn = norm.datasets()
    assert [round(x, 1) for x, _, _ in drawn["v02"]] == [2.1, 6.3, 33.6]
    for _, rate, _ in drawn["v02"]:
        assert rate == pytest.approx(3075, abs=6)
    assert drawn["v02"][-1][2] == "v02 n32 h64 w64 c64 g32 silu"
    assert {rate for _, rate, _ in drawn["memory, measured"]} == {4100}
    assert [round(rate / 100) for _, rate, _ in drawn["streaming kernel"]] == [35, 35, 35]
    assert len(drawn["PyTorch 2.11.0"]) == 3
    bound = drawn["with an empty kernel's time on top"]
    for size, rate, _ in bound:
        assert rate == pytest.approx(size / (3e-6 + size / 4.1e6) / 1e3, abs=1)
    assert bound[0][1] < 350  # a megabyte goes by in less than an empty kernel's time
    assert "waits for memory" in norm.text("#limits-lead")
    assert "Copy bandwidth, measured by the timer's calibration: 4100 GB/s" in norm.text("#limits-lead")
    assert "An empty kernel takes 3 µs" in norm.text("#limits-lead")
    assert "GB/s, cold" in norm.text("#limits-plot")
    norm.open("#path=toy/fprop")
    assert "memory, measured" in norm.datasets()
    assert "TFLOP/s, cold" in norm.text("#limits-plot")


def test_downloads_hold_the_bytes(norm):
    norm.open(f"#path={made.NORM}")
    (text,) = norm.downloads("#json")
    entry = next(entry for entry in json.loads(text) if entry["problem"].startswith("n32 h64"))
    assert [entry[name] for name in ("bytes", "copy_bytes_per_s", "streaming_seconds")] == [33.6e6, 4.1e12, 9.6e-6]


def test_names_come_from_the_layers_own_shapes(norm):
    norm.open("#find=set:unet+top&path=" + made.NORM)
    assert set(norm.rows(1)) == {"n32 h64 w64 c64 g32 silu"}
    labels = {cell.get_attribute("aria-label") for cell in norm.all("#heat a") if cell.is_displayed()}
    assert labels and all("(PyTorch 2.11.0)" in label for label in labels)


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
    bars = norm.script("return document.querySelector('#ladder-plot').data.map((trace) => trace.name)")
    assert bars == ["cold"]
    assert norm.errors() == []


def test_a_look_is_first_at_arithmetic(norm, tmp_path):
    """3000 GB/s are no more than 500 TFLOP/s."""
    norm.open(file=page_of(tmp_path, count=1))
    assert "toy/fprop" in norm.text("#kernel-head")


def test_the_profile_to_make_is_of_the_kernel_in_sight(norm):
    norm.open(V02_TOP)
    assert "./ladder profile groupnorm/forward --version 2" in norm.text("#no-profile")


def test_an_older_record_has_no_time_of_moving_its_bytes(norm, tmp_path):
    norm.open(V02_TOP, file=page_of(tmp_path, streaming=None))
    assert "75 % of a copy's" in norm.text("#kernel-head .facts")
    assert "streaming kernel" not in norm.text("#kernel-head .facts")
    assert norm.rung_heads()[4:7] == ["GB/s", "of copy", "step"]
    assert "streaming kernel" not in norm.datasets()
    assert norm.errors() == []


def test_without_a_baseline_it_stands_beside_a_copy(norm, tmp_path):
    nobody = {"library": None, "reason": "there is none"}
    norm.open(V02_TOP, file=page_of(tmp_path, baseline=nobody))
    cells = [cell.text.replace("\n", " ") for cell in norm.all("#heat a") if "copy" in cell.text]
    assert cells == ["25 % of copy", "75 % of copy"]
    assert "share of the copy bandwidth" in norm.one("#ladder-plot").get_attribute("aria-label")
    assert norm.errors() == []
