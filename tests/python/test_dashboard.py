"""The dashboard without a browser: steps, packing, what is shown of good and bad records, and the command line."""

import json
import os
import random
import re
from pathlib import Path
from unittest import mock

import pytest

import dashboard_records as made
from cli.errors import Failure, UsageError
from dashboard import ideas, library, pack
from records import record_files
from registry import listing

ROOT = Path(__file__).resolve().parents[2]

MOST_BYTES = 4_000_000  # two of them are plotly.js


@pytest.fixture
def project(tmp_path, capsys):
    return made.Tree(tmp_path, capsys)


def test_times_are_within_the_promise():
    rng = random.Random(1)
    for _ in range(2000):
        time = 10 ** rng.uniform(-9, 2)
        assert abs(pack.seconds(pack.step(time)) / time - 1) < 0.00025
    assert pack.seconds(pack.step(None)) is None


def test_json_has_no_word_for_nan():
    with pytest.raises(ValueError):
        pack.text({"time": float("nan")})


def test_header():
    fields = listing.header(
        "// Idea:   one thing\n//         and more.\n// Parent: v05.\n// Why:    it helps.\n\n// Idea: not this\n"
    )
    assert fields == {"idea": "one thing and more.", "parent": 5, "why": "it helps."}
    assert listing.header("// Parent: none.\n") == {"parent": None}


@pytest.mark.parametrize("path", ["../../etc", "a/../../b", "/etc/x", "conv3x3"])
def test_a_path_is_a_layer_and_a_pass(path):
    assert ideas.of_ladder(ROOT, path) == {}
    assert ideas.shapes(ROOT, path.rsplit("/", 1)[0] if path.count("/") > 1 else "..") == {}


def test_every_version_says_its_idea():
    for file in ROOT.glob("dev/*/*/v*.cu"):
        fields = listing.header(file.read_text(encoding="utf-8"))
        assert fields.get("idea") and fields.get("why") and "parent" in fields, file


def test_steps_and_changes(project):
    project.grown(10)
    stepped = project.series(2, made.PROBLEMS[0])
    assert [(record, before) for record, _, _, before in stepped["steps"]] == [(5, 4)]
    assert [(record, breaks, names) for record, breaks, names, _ in stepped["changes"]] == [(7, True, "driver")]
    assert stepped["changes"][0][3] == "driver 13.0 → 13.1"


def test_no_step_across_another_driver(project):
    project.grown(0)
    for day in range(8):
        raw = made.record(
            f"2026-01-0{day + 1}T00:00:00Z",
            f"{day:040x}",
            [made.result(1, made.PROBLEMS[0], 1e-5 if day < 4 else 2e-5, random.Random(day))],
            driver="13.0" if day < 4 else "13.1",
        )
        made.write(project.root, f"{day}.json", raw)
    assert project.built()["series"][0]["steps"] == []


def test_what_was_not_judged_is_not_shown(project):
    project.grown(2)
    problem, rng = made.PROBLEMS[0], random.Random(1)
    unchecked = made.result(1, problem, 1e-9, rng)
    unchecked["verdict"]["status"] = "UNCHECKED"
    only_checked = made.result(2, problem, 1e-5, rng, times=None)
    raw = made.record("2026-02-01T00:00:00Z", "f" * 40, [unchecked, only_checked])
    made.write(project.root, "later.json", raw)
    data = project.built()
    for version in (1, 2):
        series = project.series(version, problem, data)
        assert series["record"] == 1 and series["times"] is not None


def test_a_later_failure_takes_the_time_away(project):
    project.grown(2)
    failed = made.result(1, made.PROBLEMS[0], 0, random.Random(1), status="FAIL", reason="wrong")
    made.write(project.root, "later.json", made.record("2026-02-01T00:00:00Z", "f" * 40, [failed]))
    series = project.series(1, made.PROBLEMS[0])
    assert (series["status"], series["times"], series["verdict"]["status"]) == ("FAIL", None, "MISSING")


def test_registers_come_from_the_record(project):
    project.grown(1)
    assert project.series(2, made.PROBLEMS[0])["kernels"] == {"registers": 62, "smem": 2048, "spills": 0}


MOVING = 4.8e6 / 4.8e12


@pytest.mark.parametrize(
    ("path", "rooflines", "bound"),
    [
        (made.NORM, 10 * [2 * MOVING], False),
        ("conv3x3/fprop", 10 * [MOVING], True),
        ("conv3x3/fprop", 9 * [MOVING] + [2 * MOVING], True),
        ("conv3x3/fprop", 8 * [MOVING] + 2 * [2 * MOVING], False),
        ("conv3x3/fprop", 10 * [0], False),
        ("conv3x3/fprop", [MOVING] + 9 * [0], True),
    ],
)
def test_a_pass_waits_for_memory_by_its_arithmetic(project, path, rooflines, bound):
    """Never by its name, and not for a few of its shapes."""
    rng, bytes_moved = random.Random(1), {"min_read_bytes": 2.4e6, "min_write_bytes": 2.4e6}
    results = [
        made.result(1, f"n{at} c64 bf16", 1e-5, rng, path=path, roofline_seconds=roofline, **bytes_moved)
        for at, roofline in enumerate(rooflines, 1)
    ]
    made.write(project.root, "a.json", made.record("2026-01-01T00:00:00Z", "a" * 40, results))
    assert {one["memoryBound"] for one in project.built()["series"]} == {bound}


def test_passes_are_judged_one_by_one(project):
    made.with_norm(project.grown(2))
    data = project.built()
    assert {one["path"] for one in data["series"] if one["memoryBound"]} == {made.NORM}
    assert project.series(2, next(iter(made.NORM_BYTES)), data)["streaming"] == 9.6e-6


def test_libraries_are_named_once(project):
    project.grown(0)
    rng = random.Random(1)
    results = [made.moving(1, next(iter(made.NORM_BYTES)), 1e12, rng), made.result(1, made.PROBLEMS[0], 1e-5, rng)]
    made.write(project.root, "a.json", made.record("2026-01-01T00:00:00Z", "a" * 40, results))
    assert project.built()["records"][0]["library"] == "PyTorch 2.11.0, cuDNN 9.19.0"


def test_profiles(project):
    project.grown(1)
    folder = project.root / "results" / "h200" / "profiles"
    folder.mkdir()
    (folder / "good.json").write_text(json.dumps(made.PROFILE))
    (folder / "cut.json").write_text(json.dumps(made.PROFILE)[:200])
    (folder / "other.json").write_text(json.dumps({**made.PROFILE, "schema": "ladder.profile/9"}))
    data = project.built()
    assert [profile["path"] for profile in data["profiles"]] == ["toy/fprop"]
    assert data["profiles"][0]["total"]["duration"]["value"] == 16.25e-6
    assert data["profiles"][0]["kernels"][0]["grid"] == "132"
    assert [entry["file"] for entry in data["bad"]] == ["h200/profiles/cut.json", "h200/profiles/other.json"]


class BadRecords(made.Tree):
    def __init__(self, tmp_path, capsys):
        super().__init__(tmp_path, capsys)
        self.grown(3)
        self.newest = sorted((self.root / "results" / "h200").glob("*.json"))[-1]

    def reasons(self):
        data = self.built()
        assert {one["record"] for one in data["series"]} == {1}  # the one before the broken one
        return [(entry["file"], entry["reason"]) for entry in data["bad"]]


@pytest.fixture
def spoiled(tmp_path, capsys):
    return BadRecords(tmp_path, capsys)


def test_truncated(spoiled):
    spoiled.newest.write_text(spoiled.newest.read_text()[:5000])
    ((file, reason),) = spoiled.reasons()
    assert file == f"h200/{spoiled.newest.name}"
    assert "not a record" in reason


def test_tampered(spoiled):
    spoiled.newest.write_text(spoiled.newest.read_text().replace('"dirty":false', '"dirty":true'))
    ((_, reason),) = spoiled.reasons()
    assert "checksum" in reason


def test_a_median_of_other_samples(spoiled):
    raw = json.loads(spoiled.newest.read_text())
    raw["results"][0]["times"]["cold_seconds"]["median"] *= 0.5
    spoiled.newest.write_text(record_files.text_of(raw))  # with a checksum that fits
    ((_, reason),) = spoiled.reasons()
    assert "samples say" in reason


def test_it_is_said_and_shown(spoiled):
    spoiled.newest.write_text("{")
    status, said = spoiled.run_tool()
    assert status == 0
    assert f"not shown: h200/{spoiled.newest.name}: " in said
    text = (spoiled.root / "results" / "index.html").read_text()
    assert '<aside class="bad"' in text
    assert "1 record is not shown" in text
    assert spoiled.run_tool("--strict")[0] == 1


def table(project):
    """[{heading: text}] of the table of results."""
    table = re.search(
        r'<table id="table"[^>]*>.*?<thead>(.*?)</thead>.*?<tbody>(.*?)</tbody>', project.text(), re.DOTALL
    )
    names = re.findall(r"<th[^>]*>(.*?)</th>", table[1])
    found = []
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table[2]):
        cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        assert len(cells) == len(names)
        found.append(dict(zip(names, cells)))
    return found


def test_the_same_records_give_the_same_page(project):
    project.grown(3)
    first = project.text()
    for file in (project.root / "results").glob("*/*.json"):
        os.utime(file, (1, 1))
    assert project.text() == first


def test_nothing_is_loaded_from_outside(project):
    project.grown(2)
    text = project.text()
    own = text  # plotly.js is compressed in it, and no more than data until the page's script runs it
    assert re.findall(r"(?:src|action)\s*=|@import|url\(|<iframe|<object|import\(", own) == []
    targets = re.findall(r'href="([^"]*)"', own)
    assert [target for target in targets if not target.startswith(("#", "data:,"))] == []
    assert "default-src 'none'" in own


def test_the_table_is_there_without_scripts(project):
    project.grown(2)
    text = project.text()
    rows = re.search(r'<table id="table"[^>]*>.*?<tbody>(.*?)</tbody>', text, re.DOTALL)[1]
    assert rows.count("<tr ") == 9
    assert "<noscript>" in text
    assert "SKIP" in rows
    assert re.search(r"<td class=n>6\.\d\d</td>|<td class=n>15\.\d</td>", rows)


def test_what_waits_for_memory_has_its_rate_in_bytes(project):
    made.with_norm(project.grown(2))
    rows = table(project)
    norm = [row for row in rows if row["kernel"].startswith(made.NORM)]
    conv = [row for row in rows if row not in norm]
    assert [len(norm), len(conv)] == [6, 9]
    for row in norm:
        v02 = "v02" in row["kernel"]
        assert float(row["GB/s"]) == pytest.approx(3075 if v02 else 1025, abs=6)
        assert row["copy, %"] in (("74.9", "75.0", "75.1") if v02 else ("25.0", "25.1"))
        assert float(row["streaming, %"]) == pytest.approx(100 * (3.075 if v02 else 1.025) / 3.5, abs=0.2)
        assert row["TFLOP/s"] == ""
    for row in conv:
        assert (row["GB/s"], row["copy, %"], row["streaming, %"]) == ("", "", "")
        assert (row["TFLOP/s"] == "") == (row["check"] == "SKIP")


def test_a_rate_that_no_kernel_has_is_no_column(project):
    project.grown(2)
    assert {"TFLOP/s", "GB/s", "copy, %", "streaming, %"} & set(table(project)[0]) == {"TFLOP/s"}
    assert "Streaming:" not in project.text()
    for file in (project.root / "results").glob("*/*.json"):
        file.unlink()
    made.with_norm(project.root, streaming=None)  # as in an older record
    assert {"TFLOP/s", "GB/s", "copy, %", "streaming, %"} & set(table(project)[0]) == {"GB/s", "copy, %"}
    (file,) = (project.root / "results").glob("*/*.json")
    file.write_text(record_files.text_of({**json.loads(file.read_text()), "calibration": None}))
    assert {"TFLOP/s", "GB/s", "copy, %", "streaming, %"} & set(table(project)[0]) == {"GB/s"}


def test_the_license_stays(project):
    project.grown(1)
    assert "Permission is hereby granted" in project.text()


def test_words_of_records_are_inert(project):
    project.grown(0)
    evil = "<script>alert(1)</script>"
    one = made.result(1, f"n1 {evil} fp32", 1e-5, random.Random(1), idea=evil, command=evil)
    raw = made.record("2026-01-01T00:00:00Z", evil, [one])
    raw["environment"]["device"]["name"] = evil
    made.write(project.root, "a.json", raw)
    made.write(project.root, f"{evil.replace('/', '')}.json", {"schema": "ladder.record/9"})
    text = project.text()
    assert "alert(1)</" not in text
    assert "&lt;script&gt;" in text


def test_without_records_it_says_how_to_make_one(project):
    project.grown(0)
    text = project.text()
    assert "No record yet" in text
    assert "./ladder record" in text


def test_size_of_500_series_by_500_records():
    assert len(made.large_page().encode()) < MOST_BYTES


def test_wrong_usage(project):
    project.grown(1)
    for arguments in (["--frobnicate"], ["--out", str(project.root / "no" / "such" / "folder.html")]):
        with pytest.raises(UsageError) as raised:
            project.run_tool(*arguments)
        assert len(str(raised.value).splitlines()) == 1


def test_an_unfinished_page_replaces_nothing(project, monkeypatch):
    project.grown(1)
    project.run_tool()
    out = project.root / "results" / "index.html"
    before = out.read_text()
    monkeypatch.setattr(library, "source", mock.Mock(side_effect=Failure("no network")))
    with pytest.raises(Failure):
        project.run_tool()
    assert out.read_text() == before
    assert [file.name for file in out.parent.iterdir() if file.name.startswith(".")] == []


def test_only_the_pinned_file_is_taken(capsys):
    assert not library._is_pinned(b"alert(1)")
    assert "checksum" in capsys.readouterr().err
