"""The top of the dashboard: what the newest comparison says, and how the promoted versions stand beside the library."""

import json
import random
import re

import pytest

import dashboard_records as made
from dashboard import model

TOP, LOW, LOW_FP32 = made.PROBLEMS


class Top(made.Tree):
    def headline(self):
        return re.search(r"<h1>(.*?)</h1>", self.text())[1]

    def measure(self, day, seconds, uuid="GPU-1", problem=TOP):
        """A record of {version: its time}."""
        rng = random.Random(day)
        raw = made.record(
            f"2026-03-{day:02d}T00:00:00Z",
            f"{day:040x}",
            [made.result(version, problem, time, rng) for version, time in seconds.items()],
        )
        raw["environment"]["device"]["uuid"] = uuid
        made.write(self.root, f"2026-03-{day:02d}.json", raw)

    def live(self, day, **counts):
        sides = {name: {"name": name, "commit": name * 40, "dirty": name == "b"} for name in "ab"}
        raw = {"schema": "ladder.comparison/1", "mode": "live", "counts": counts, **sides}
        raw["comparisons"] = [{"path": "toy/fprop"}]
        (self.root / "results" / "h200" / f"2026-03-{day:02d}_b_compare-live.json").write_text(json.dumps(raw))

    def rows(self):
        """{"toy/fprop bf16": texts of its cells}"""
        found = {}
        for table in re.findall(r'<table class="standing">.*?<tbody>(.*?)</tbody>', self.text(), re.DOTALL):
            for row in re.findall(r"<tr .*?</tr>", table):
                name, *cells = (
                    " ".join(re.sub("<[^>]*>", " ", cell.replace("<wbr>", "")).split())
                    for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
                )
                found[name] = cells
        return found

    def promote(self, *lines):
        file = self.root / "runtime" / "promoted" / "h200.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"toy/fprop  {line}\n" for line in lines))


@pytest.fixture
def project(tmp_path, capsys):
    return Top(tmp_path, capsys)


def test_newest_against_the_one_before(project):
    project.grown(10)
    data = project.built()
    slow = project.series(3, LOW, data)
    assert slow["verdict"]["status"] == "SLOW"
    assert slow["verdict"]["ratio"] == pytest.approx(1.08, abs=0.01)
    assert project.series(2, TOP, data)["verdict"]["status"] == "SAME"
    assert project.series(3, LOW_FP32, data)["verdict"]["status"] == model.UNTIMED
    assert project.headline() == "1 kernel became slower on 2026-01-10."
    assert "8 kernels compared (records): 1 slower than before, 7 unchanged." in project.text()


def test_one_record_is_compared_with_nothing(project):
    project.grown(1)
    assert {one["verdict"]["status"] for one in project.built()["series"]} == {model.FIRST}
    assert project.headline() == "Nothing to compare yet: no kernel has two records of one card."


def test_another_card_is_no_regression(project):
    project.grown(0)
    project.measure(1, {1: 1e-5})
    project.measure(2, {1: 2e-5}, uuid="GPU-2")
    assert project.series(1, TOP)["verdict"]["status"] == model.FIRST
    project.measure(3, {1: 1e-5})
    back = project.series(1, TOP)
    assert (back["verdict"]["status"], back["timed"]) == ("SAME", [0, 2])


def test_older_comparisons_are_no_news(project):
    project.grown(0)
    project.measure(1, {1: 1e-5, 2: 1e-5})
    project.measure(2, {1: 2e-5})
    assert project.headline() == "1 kernel became slower on 2026-03-02."
    project.measure(3, {2: 1e-5})
    assert project.headline() == "No kernel became slower on 2026-03-03."
    older = project.series(1, TOP)["verdict"]
    assert (older["status"], older["reason"]) == (model.OLDER, "SLOW on 2026-03-02")


def test_a_live_comparison_counts_where_it_is_the_newest(project):
    project.grown(0)
    project.measure(1, {1: 1e-5})
    project.measure(3, {1: 2e-5})
    project.live(2, SLOW=0, AMBIGUOUS=5)
    assert project.headline() == "1 kernel became slower on 2026-03-03."
    project.live(4, SLOW=2, SAME=8, AMBIGUOUS=5)
    assert project.headline() == "2 kernels became slower on 2026-03-04."
    assert (
        "15 kernels compared (live, bbbbbbb+ beside aaaaaaa in turn, toy/fprop): 2 slower than before, "
        "8 unchanged, 5 too noisy to tell."
    ) in project.text()
    assert '<ul class="strip">' not in project.text()
    broken = project.root / "results" / "h200" / "2026-03-05_b_compare-live.json"
    broken.write_text('{"schema": "ladder.comparison/1"}')
    assert "not a live comparison" in project.built()["bad"][0]["reason"]


def test_what_is_promoted_over_all_problems(project):
    project.grown(1)
    project.promote(
        f"{TOP}  v02_tiled  10.0 us warm  50.0 cold  cuDNN  60.0 warm  aaaaaaa",
        f"{LOW}  v03_wgmma  50.0 us warm  30.0 cold  PyTorch  30.0 cold  bbbbbbb",
        "n8 h8 w8 c256 k256 bf16  v01_naive  1.00 us warm  1.00 cold  cuDNN  99.0 warm  ccccccc",
        f"{LOW_FP32}  v01_naive  10.0 us warm  10.0 cold  -  -  ddddddd",
    )
    assert project.rows() == {
        "toy/fprop bf16": [
            "2.25",
            "1.00 to 6.00",
            "2 of 2",
            "40",
            "90",
            "1 × v02 tiled, 1 × v03 wgmma",
            "PyTorch or cuDNN",
            "aaaaaaa bbbbbbb",
        ],
        "toy/fprop fp32": ["1 × v01 naive"],
    }


def test_the_problem_of_the_unet_has_a_bias(project):
    project.grown(1)
    shapes = project.root / "dev" / "toy" / "shapes.txt"
    shapes.write_text(shapes.read_text() + "[unet_bias]\ntop_bias: n32 h64 w64 c64 k64 bias\n")
    bias = TOP.replace(" bf16", " bias bf16")
    without = f"{TOP}  v01_naive  20.0 us warm  20.0 cold  cuDNN  40.0 warm  aaaaaaa"
    project.promote(without, f"{bias}  v02_tiled  10.0 us warm  10.0 cold  cuDNN  50.0 warm  bbbbbbb")
    assert project.rows()["toy/fprop bf16"][:1] + project.rows()["toy/fprop bf16"][2:6] == [
        "5.00",
        "1 of 1",
        "10",
        "50",
        "1 × v02 tiled",
    ]
    project.promote(without, f"{bias}  v02_tiled  10.0 us warm  10.0 cold  -  -  bbbbbbb")
    assert project.rows()["toy/fprop bf16"][:1] + project.rows()["toy/fprop bf16"][2:6] == [
        "2.00",
        "1 of 1 without bias",
        "20",
        "40",
        "1 × v02 tiled",
    ]


def test_a_layer_that_the_unet_has_not_stands_on_perf(project):
    project.grown(1)
    (project.root / "dev" / "toy" / "shapes.txt").write_text(
        "[ci]\nsmall: n8 h8 w8 c256 k256\n[perf]\nlow: n32 h8 w8 c256 k256\n"
    )
    project.promote(
        "n8 h8 w8 c256 k256 bf16  v01_naive  1.00 us warm  1.00 cold  cuDNN  99.0 warm  ccccccc",
        f"{LOW}  v02_tiled  10.0 us warm  50.0 cold  cuDNN  60.0 warm  aaaaaaa",
        f"{LOW_FP32}  v01_naive  10.0 us warm  10.0 cold  -  -  ddddddd",
    )
    rows = project.rows()
    assert rows["toy/fprop bf16"] == [
        "6.00",
        "6.00 to 6.00",
        "1 of 1 of perf",
        "10",
        "60",
        "1 × v02 tiled",
        "cuDNN",
        "aaaaaaa",
    ]
    assert rows["toy/fprop fp32"] == ["1 × v01 naive"]


def test_a_few_problems_are_no_figure_of_a_ladder(project):
    project.grown(1)
    others = [f"n32 h{at} w8 c256 k256" for at in (9, 10)]
    shapes = project.root / "dev" / "toy" / "shapes.txt"
    shapes.write_text(shapes.read_text() + "".join(f"x{shape.split()[1]}: {shape}\n" for shape in others))
    project.promote(
        f"{TOP}  v03_wgmma  10.0 us warm  10.0 cold  cuDNN  90.0 warm  aaaaaaa",
        *(f"{shape} bf16  v03_wgmma  10.0 us warm  10.0 cold  -  -  aaaaaaa" for shape in others),
    )
    assert project.rows()["toy/fprop bf16"][:3] == ["–", "9.00 to 9.00", "1 of 3"]


def test_not_promoted_the_version_with_most_problems_stands(project):
    project.grown(1)
    made.with_norm(project.root)
    for at in range(3):  # v09 is the fastest, of one problem; v03 has no fp32
        project.measure(1 + at, {3: 1.5e-5, 2: 4e-5}, problem=f"n32 h{9 + at} w8 c256 k256 bf16")
    project.measure(9, {9: 1e-6})
    rows = project.rows()
    ratio, span, *cells = rows["toy/fprop bf16"]
    assert cells[0] == "5 of 5"
    assert cells[3:5] == ["5 × v03 wgmma recorded, not promoted", "cuDNN 9.19.0"]
    assert float(ratio) == pytest.approx(20 / 15, abs=0.05)
    assert "v02 tiled" in rows["toy/fprop fp32"][5]
    assert rows[f"{made.NORM} bf16"][5:7] == ["3 × v02 one pass recorded, not promoted", "PyTorch 2.11.0"]
