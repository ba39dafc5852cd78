"""./ladder bench --csv and --plot: tables and plots of a record."""

import csv
import io
import sys

import pytest

import made_records
from cli import bench, device, plot, tools, wheels
from cli.errors import Failure, UsageError
from records import record_files, sheet


def record(tmp_path, *results):
    file = tmp_path / "made.json"
    made_records.write(file, made_records.record(list(results)))
    return record_files.load(file)


@pytest.fixture
def sweep(tmp_path):
    return record(
        tmp_path,
        *(made_records.result(1, n * 1e-6, f"n{n} c64 bf16", n * 2e-6, idea="naive") for n in (16, 4, 8)),
        made_records.result(2, None, "n4 c64 bf16", None, "SKIP", "too narrow, by far", idea="wide"),
    )


def test_a_line_a_result(sweep):
    rows = list(csv.DictReader(io.StringIO(sheet.text(sweep))))
    assert [(row["version"], row["n"], row["c"], row["status"], row["us_cold"]) for row in rows] == [
        ("1", "16", "64", "PASS", "16"),
        ("1", "4", "64", "PASS", "4"),
        ("1", "8", "64", "PASS", "8"),
        ("2", "4", "64", "SKIP", ""),
    ]
    assert (rows[3]["reason"], rows[0]["baseline_us_cold"], rows[0]["tflops"]) == ("too narrow, by far", "32", "125")


def test_the_size_that_varies_is_across(sweep):
    drawn = plot.picture(sweep)
    assert (drawn.title, drawn.axis, drawn.ticks) == ("toy/fprop c64 on NVIDIA H200", "n", [4, 8, 16])
    assert {name: [(x, round(y, 6)) for x, y in points] for name, points in drawn.series.items()} == {
        "v01_naive": [(4, 4.0), (8, 8.0), (16, 16.0)],
        "cuDNN 9": [(4, 8.0), (8, 16.0), (16, 32.0)],
    }


def test_problems_are_across_where_several_sizes_vary(tmp_path):
    drawn = plot.picture(
        record(
            tmp_path,
            made_records.result(1, 2e-6, "n4 c64 bf16", None, min_read_bytes=9e6),
            made_records.result(1, 1e-6, "n4 c32 bf16", None),
            made_records.result(1, 3e-6, "n8 c64 fp32", None, min_read_bytes=99e6),
        )
    )
    assert (drawn.axis, drawn.labels) == ("problem", ["n4 c32", "n4 c64", "n8 c64"])
    assert list(drawn.series) == ["v01_idea_1 bf16", "v01_idea_1 fp32"]
    assert [x for x, _ in drawn.series["v01_idea_1 bf16"]] == [1, 2]


def test_nothing_timed(tmp_path):
    with pytest.raises(Failure, match="^nothing was timed"):
        plot.picture(record(tmp_path, made_records.result(1, None, against=None)))


def test_both_pictures(sweep, monkeypatch):
    for library in ("plotext", "matplotlib"):
        pytest.importorskip(library)
    monkeypatch.setenv("COLUMNS", "60")
    lines = plot.in_terminal(plot.picture(sweep)).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].strip() == "toy/fprop c64 on NVIDIA H200"
    assert "oo v01_naive" in lines[2] and "\033" not in "".join(lines)
    picture = plot.as_svg(plot.picture(sweep))
    assert picture.startswith("<?xml") and "v01_naive" in picture and "cuDNN 9" in picture


class Bench:
    """The bench verb with a program that records one result and fails its check."""

    def __init__(self, tmp_path, monkeypatch):
        self.folder = tmp_path
        made_records.write(tmp_path / "made.json", made_records.record([made_records.result(1, 1e-6)]))
        program = tmp_path / "bench_silu"
        program.write_text(
            f"#!{sys.executable}\nimport pathlib, shutil, sys\n"
            "(file,) = (word[9:] for word in sys.argv if word.startswith('--record='))\n"
            f"shutil.copy({str(tmp_path / 'made.json')!r}, file)\n"
            "print('a row')\nprint('record:', file)\nsys.exit(1)\n"
        )
        program.chmod(0o755)
        monkeypatch.setattr(bench.build, "folder", lambda preset: tmp_path)
        monkeypatch.setattr(bench.build, "build", lambda preset, **more: [])
        monkeypatch.setattr(bench.partial, "of", lambda *words: None)
        monkeypatch.setattr(bench.device, "choose", lambda wanted: device.Choice(wanted or "cuda", "for a test"))


def test_bench_writes_the_table_and_the_picture(tmp_path, monkeypatch, capfd):
    Bench(tmp_path, monkeypatch)
    asked = []
    monkeypatch.setattr(wheels, "python_with", lambda pins, log: asked.append(pins) or tmp_path / "python")
    (tmp_path / "python").write_text(f'#!/bin/sh\necho "$2" > {tmp_path}/drawn\necho "$3" >> {tmp_path}/drawn\n')
    (tmp_path / "python").chmod(0o755)
    assert bench.main(["silu", "--csv", str(tmp_path / "a.csv"), "--plot"]) == 1
    assert (
        (tmp_path / "a.csv").read_text().splitlines()[1].startswith("toy,fprop,1,idea_1,n32 c64 bf16,bf16,32,64,PASS")
    )
    assert capfd.readouterr().out == "a row\n"
    kept = tmp_path / "kept.json"
    bench.main(["silu", "--record", str(kept), "--plot", str(tmp_path / "a.svg")])
    assert (tmp_path / "drawn").read_text().splitlines() == [str(kept), str(tmp_path / "a.svg")]
    assert f"record: {kept}" in capfd.readouterr().out
    assert asked == [wheels.PLOTEXT, wheels.MATPLOTLIB]


def test_wrong_files(tmp_path, monkeypatch):
    Bench(tmp_path, monkeypatch)
    monkeypatch.setattr(tools, "environment", lambda: pytest.fail("a program was started"))
    for arguments, says in (
        (["--csv", "a.txt"], "'a.txt' does not end in .csv"),
        (["--plot", "nowhere/a.svg"], "no folder nowhere"),
        (["--plot", "--once"], "--once measures nothing for --plot"),
    ):
        with pytest.raises(UsageError, match=says):
            bench.main(["silu", *arguments])
    monkeypatch.setattr(bench.device, "choose", lambda wanted: device.Choice("emulator", "for a test"))
    with pytest.raises(UsageError, match="need a GPU"):
        bench.main(["silu", "--plot"])


@pytest.mark.parametrize("preset", ["emulator", "cuda"])
def test_ones_own_baseline_needs_a_gpu(tmp_path, monkeypatch, capfd, preset):
    Bench(tmp_path, monkeypatch)
    (tmp_path / "mine.py").touch()
    monkeypatch.setattr(bench.device, "choose", lambda wanted: device.Choice(preset, "for a test"))
    bench.main(["silu", "--csv", str(tmp_path / "a.csv"), "--baseline", str(tmp_path / "mine.py")])
    assert ("mine.py is not run: a baseline needs a GPU" in capfd.readouterr().err) == (preset == "emulator")
