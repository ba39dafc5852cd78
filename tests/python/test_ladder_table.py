"""The table tool on good, old, failed and corrupt records, and the resource tool on ptxas reports."""

import re
from pathlib import Path

import pytest

import made_records
from dev import resources
from readme import generated, ladder_table

ROOT = Path(__file__).resolve().parents[2]

README = """\
# Title
before
<!-- ladder:begin toy/fprop summary -->
old
<!-- ladder:end -->
between
<!-- ladder:begin toy/fprop shapes -->
<!-- ladder:end -->
after
"""


def result(version, seconds, problem="n32 c64 bf16", baseline=100e-6, status="PASS"):
    return made_records.result(version, seconds, problem, baseline, status)


class Table:
    def __init__(self, tmp_path, capsys):
        self.capsys = capsys
        self.root = tmp_path
        (self.root / "dev" / "toy").mkdir(parents=True)
        (self.root / "dev" / "toy" / "shapes.txt").write_text("[ci]\nsmall: n1 c8\n[unet]\ntop: n32 c64\nlow: n32 c8\n")
        self.readme = self.root / "README.md"
        self.readme.write_text(README)
        (self.root / "results" / "h200").mkdir(parents=True)

    def record(self, name, results, created="2026-01-01T00:00:00Z", kind="gpu", schema="ladder.record/2"):
        made = made_records.record(results, created, "abcdef0123456", kind=kind, schema=schema)
        made_records.write(self.root / "results" / "h200" / name, made)

    def run_tool(self, *arguments):
        return ladder_table.main(["--root", str(self.root), *arguments]), self.capsys.readouterr().err

    def rendered(self):
        """The README as the tool would write it; pictures need matplotlib, so they are not drawn here."""
        rows = ladder_table.read(self.root / "results")
        texts, pictures = ladder_table.render(self.root, rows)
        return texts[self.readme], pictures

    def memory_bound(self, version, seconds, problem="n32 c64 bf16", tried=(), reason="", status="PASS"):
        made = made_records.result(
            version,
            seconds,
            problem,
            100e-6,
            status,
            flops=1e6,
            min_read_bytes=24e6,
            min_write_bytes=24e6,
            roofline_seconds=10e-6,
        )  # at 4.8 TB/s
        made["baseline"] |= {
            "tried_plans": [{"name": name, "seconds": cold, "reason": ""} for name, cold in tried],
            "library": "PyTorch 2.11.0, cuDNN 9.19.0",
            "reason": reason,
            "heuristic_times": made_records.times(200e-6),
        }
        return made

    def left_out(self, text):
        self.record("good.json", [result(1, 200e-6)])
        self.run_tool()
        whole = self.readme.read_text()
        (self.root / "results" / "h200" / "bad.json").write_text(text)
        for arguments in ((), ("--check",)):
            status, errors = self.run_tool(*arguments)
            assert status == 0
            assert len(errors.splitlines()) == 1, errors
            assert "bad.json" in errors
            assert self.readme.read_text() == whole


@pytest.fixture
def project(tmp_path, capsys):
    return Table(tmp_path, capsys)


def test_figures_are_those_of_the_record(project):
    project.record("a.json", [result(1, 200e-6), result(2, 50e-6), result(2, 25e-6, "n32 c8 bf16")])
    text, pictures = project.rendered()
    # v02 over the shape that v01 has too: 50 us, 2e9 flops, roofline 10/50, 100/50; over its own: 100/50 and 100/25
    assert "| v02 idea 2 | 50.0 | 40.0 | 20 % | 2.00 | 2 | 2.83 | 2.00 to 4.00 | 4.00 |" in text
    assert "| v01 idea 1 | 200 | 10.0 | 5 % | 0.50 | 1 | 0.50 |\n" in text
    assert "2 shapes (times: 1) of the U-Net at batch 32 in bf16" in text
    assert "| top | `n32 c64` | 200 | 50.0 | 100 | 2.00 |" in text
    assert "\nold\n" not in text
    for kept in ("# Title\nbefore\n", "\nbetween\n", "\nafter\n"):
        assert kept in text
    ((_, data),) = pictures.values()
    assert [(version, round(ratio, 3)) for version, _, ratio in data["bf16"]] == [(1, 2.0), (2, 0.5)]


def test_a_column_is_over_one_set_of_shapes(project):
    """A version that skips much has figures over its own shapes only, and no say in what the times are of."""
    results = [result(1, 200e-6), result(1, 80e-6, "n32 c8 bf16"), result(2, 50e-6)]
    results += [result(2, None, "n32 c8 bf16", status="SKIP"), result(3, 20e-6), result(3, 40e-6, "n32 c8 bf16")]
    project.record("a.json", results)
    text, pictures = project.rendered()
    assert "| v01 idea 1 | 126 | 14.3 | 8 % | 0.79 | 2 | 0.79 | 0.50 to 1.25 |\n" in text
    assert "| v02 idea 2 |  |  |  |  | 1 of 2 | 2.00 |  | 4.00 |\n" in text
    assert "| v03 idea 3 | 28.3 | 66.7 | 35 % | 3.54 | 2 | 3.54 | 2.50 to 5.00 | 2.24 |\n" in text
    assert "| *cuDNN 9, best plan* | 100 | 20.0 |\n" in text
    ((_, data),) = pictures.values()
    # Geometric means: of 2.0 and 0.8, of 0.2 and 0.4
    assert {name: [(version, round(ratio, 3)) for version, _, ratio in points] for name, points in data.items()} == {
        "bf16": [(1, 1.265), (3, 0.283)],
        "bf16, fewer shapes": [(2, 0.5)],
    }


def test_a_layer_that_the_unet_has_not_is_shown_on_perf(project):
    (project.root / "dev" / "toy" / "shapes.txt").write_text("[ci]\nsmall: n1 c8\n[perf]\nlarge: n32 c64\n")
    project.record("a.json", [result(1, 200e-6), result(1, 9e-6, "n1 c8 bf16")])
    text, _ = project.rendered()
    assert "**, the shapes of `perf` in bf16, records of commit" in text
    assert "| v01 idea 1 | 200 |" in text


def test_a_problem_with_another_word_is_of_another_set(project):
    shapes = project.root / "dev" / "toy" / "shapes.txt"
    shapes.write_text(shapes.read_text() + "[unet_bias]\ntop_bias: n32 c64 bias\n")
    project.record("a.json", [result(1, 200e-6), result(2, 50e-6, "n32 c64 bias bf16"), result(2, 9e-6, "n1 c8 bf16")])
    text, _ = project.rendered()
    assert (
        "| **bf16** `unet`, 1 of the 2 shapes |\n| v01 idea 1 | 200 | 10.0 | 5 % | 0.50 |\n"
        "| *cuDNN 9, best plan* | 100 | 20.0 |\n"
        "| **bf16** `unet_bias`, 1 shape |\n| v02 idea 2 | 50.0 | 40.0 | 20 % | 2.00 |\n"
    ) in text
    assert "| top | `n32 c64` | 200 | 100 | 0.50 |" in text
    assert "| top_bias | `n32 c64 bias` | 50.0 | 100 | 2.00 |" in text


def test_a_marker_of_a_layer_is_one_table_of_the_passes_that_the_tree_has(project):
    for name in ("fprop", "dgrad"):
        (project.root / "dev" / "toy" / name).mkdir()
    made = [{**result(1, seconds), "pass": name} for name, seconds in (("fprop", 50e-6), ("dgrad", 25e-6))]
    project.record("a.json", [*made, {**result(1, 80e-6), "pass": "gone"}])
    project.readme.write_text("<!-- ladder:begin toy/* summary -->\n<!-- ladder:end -->\n")
    text, pictures = project.rendered()
    assert "the U-Net's shapes at batch 32 in bf16, records of commit abcdef0.\n" in text
    assert [line for line in text.splitlines() if line.startswith(("| **", "| v"))] == [
        "| version | time, us | TFLOP/s | of roofline | x baseline |",
        "| **toy/dgrad**, 1 of the 2 shapes |",
        "| v01 idea 1 | 25.0 | 80.0 | 40 % | 4.00 |",
        "| **toy/fprop**, 1 of the 2 shapes |",
        "| v01 idea 1 | 50.0 | 40.0 | 20 % | 2.00 |",
    ]
    assert {file.name for file in pictures} == {"ladder_toy_dgrad.svg", "ladder_toy_fprop.svg"}


def test_a_version_that_the_tree_has_no_longer_is_not_shown(project):
    project.record("a.json", [result(1, 100e-6), result(2, 80e-6), result(3, 50e-6)])
    (project.root / "dev" / "toy" / "fprop").mkdir()
    for name in ("v01_naive", "v03_wide"):
        (project.root / "dev" / "toy" / "fprop" / f"{name}.cu").touch()
    text, pictures = project.rendered()
    assert "v02" not in text
    assert re.search(r"^\| v03 idea 3 \|.* 2.00 \|$", text, re.MULTILINE)  # 100 us before
    ((_, data),) = pictures.values()
    assert [version for version, _, _ in data["bf16"]] == [1, 3]


def test_of_several_reasons_the_one_that_most_rows_give_stands_below(project):
    made = [project.memory_bound(version, 50e-6, reason="common") for version in (1, 2)]
    project.record("a.json", [*made, project.memory_bound(3, 50e-6, reason="a rare one")])
    text = project.rendered()[0]
    assert text.count("Missing: common.") == 2
    assert "a rare one" not in text


def test_the_heading_says_how_many_shapes_were_measured(project):
    project.record("a.json", [result(1, 200e-6)])
    assert ", 1 of the 2 shapes of the U-Net" in project.rendered()[0]
    project.record("b.json", [result(1, 200e-6, "n32 c8 bf16")])
    assert "**, 2 shapes of the U-Net" in project.rendered()[0]


def test_the_newest_record_wins_whatever_the_file_name(project):
    project.record("z.json", [result(1, 200e-6)], created="2026-01-01T00:00:00Z")
    project.record("a.json", [result(1, 400e-6)], created="2026-01-02T00:00:00Z")
    assert "| v01 idea 1 | 400 |" in project.rendered()[0]


def test_a_later_check_keeps_the_time_and_a_later_failure_does_not(project):
    project.record("a.json", [result(1, 200e-6), result(2, 100e-6)], created="2026-01-01T00:00:00Z")
    project.record("b.json", [result(1, None), result(2, None, status="FAIL")], created="2026-01-02T00:00:00Z")
    text, _ = project.rendered()
    assert "| v01 idea 1 | 200 |" in text
    assert "| v02 idea 2 |  |  |  |  | 0 of 1, 1 FAIL |" in text


def test_what_did_not_pass_has_no_figure(project):
    project.record("a.json", [result(1, 1e-6, status="UNTRUSTED"), result(2, None, status="FAIL")])
    text, _ = project.rendered()
    assert "| v01 idea 1 | 0 of 1, 1 UNTRUSTED |" in text
    assert "| v02 idea 2 | 0 of 1, 1 FAIL |" in text
    assert "| UNTRUSTED | FAIL | 100 | - |" in text


def test_emulated_runs_and_other_sets_are_not_shown(project):
    project.record("a.json", [result(1, 1e-6)], kind="emulator")
    project.record("b.json", [result(2, 1e-6, "n1 c8 bf16")])
    project.record("c.json", {"anything": 1}, schema="ladder.conformance/1")
    text, pictures = project.rendered()
    assert text.count("No record yet") == 2
    assert pictures == {}


def test_without_a_baseline_there_is_no_ratio(project):
    project.record("a.json", [result(1, 200e-6, baseline=None)])
    assert "| v01 idea 1 | 200 | 10.0 | 5 % |\n" in project.rendered()[0]


def test_a_plan_that_says_whose_it_is_needs_no_guess(project):
    made = project.memory_bound(1, 50e-6, tried=[("PyTorch eager nhwc", 200e-6), ("eng0", 400e-6)])
    for plan, library in zip(made["baseline"]["tried_plans"], ("Triton", "cuBLASLt")):
        plan["library"] = library
    project.record("a.json", [made])
    text, _ = project.rendered()
    assert "| *Triton* | 200 |" in text
    assert "| *cuBLASLt* | 400 |" in text


def test_a_memory_bound_layer_is_told_in_bytes(project):
    tried = [
        ("PyTorch eager nhwc", 200e-6),
        ("PyTorch eager nchw", 150e-6),
        ("PyTorch compile nhwc", 100e-6),
        ("eng0", 400e-6),
        ("eng1", 0),
    ]
    project.record(
        "a.json",
        [
            project.memory_bound(1, 50e-6, tried=tried, reason="no crystal ball"),
            project.memory_bound(2, 25e-6),
            project.memory_bound(3, None, status="FAIL"),
        ],
    )
    text, _ = project.rendered()
    # 48 MB in 25 us are 1920 GB/s, and a copy makes 4100
    assert "| v02 idea 2 | 25.0 | 1920 | 47 % | - | 4.00 | 8.00 | 1 | 4.00 | 2.00 |" in text
    assert "| v03 idea 3 |  |  |  |  |  |  | 0 of 1, 1 FAIL |" in text
    assert "| *PyTorch eager* | 150 | 320 | 8 % | - |\n" in text
    assert "| *PyTorch compile* | 100 | 480 | 12 % | - |\n" in text
    assert "| *cuDNN* | 400 |" in text
    assert "Missing: no crystal ball." in text
    assert (
        "| v01 | v02 | v03 | best GB/s | of a copy | of a streaming kernel | PyTorch compile | PyTorch eager | cuDNN | best x |"
        in text
    )
    assert "| top | `n32 c64` | 50.0 | 25.0 | FAIL | 1920 | 47 % | - | 100 | 150 | 400 | 4.00 |" in text
    assert "TFLOP/s" not in text


def test_moving_the_bytes_alone_is_a_share_of_the_time_of_those_it_was_timed_for(project):
    moved = {"streaming": {"seconds": 20e-6, "samples": [19e-6, 20e-6, 90e-6]}}
    tried = [("PyTorch eager nhwc", 200e-6)]
    project.record(
        "a.json",
        [
            project.memory_bound(1, 50e-6) | {"streaming": None},
            project.memory_bound(1, 50e-6, "n32 c8 bf16", tried=tried),
            project.memory_bound(2, 25e-6, tried=tried) | moved,
            project.memory_bound(2, 32e-6, "n32 c8 bf16"),
        ],
    )
    text, _ = project.rendered()
    assert "| v01 idea 1 | 50.0 | 960 | 23 % | - |" in text
    assert "| v02 idea 2 | 28.3 | 1684 | 41 % | 80 % |" in text
    assert "| *PyTorch eager* | 200 | 240 | 6 % | 10 % |" in text
    assert "| top | `n32 c64` | 50.0 | 25.0 | 1920 | 47 % | 80 % | 200 |" in text
    assert "| low | `n32 c8` | 50.0 | 32.0 | 1500 | 37 % | - | 200 |" in text


def test_the_copy_is_that_of_the_passs_own_program(project):
    programs = {"toy/fprop": [{"calibration": None}, {"calibration": {"copy_bytes_per_s": 1.92e12}}]}
    made = made_records.record([project.memory_bound(1, 25e-6)], programs=programs)
    made_records.write(project.root / "results" / "h200" / "a.json", made)
    assert "| v01 idea 1 | 25.0 | 1920 | 100 % |" in project.rendered()[0]


def test_a_copy_over_two_records_is_their_geometric_mean(project):
    """1920 GB/s beside copies of 4800 and 1200, so of 2400."""
    for name, copied, problem in (("a", 4.8e12, "n32 c64 bf16"), ("b", 1.2e12, "n32 c8 bf16")):
        made = made_records.record([project.memory_bound(1, 25e-6, problem)])
        made["calibration"]["copy_bytes_per_s"] = copied
        made_records.write(project.root / "results" / "h200" / f"{name}.json", made)
    assert "| v01 idea 1 | 25.0 | 1920 | 80 % |" in project.rendered()[0]


def test_a_layer_with_more_arithmetic_than_traffic_is_not(project):
    project.record("a.json", [project.memory_bound(1, 50e-6), result(2, 50e-6)])
    assert "TFLOP/s" in project.rendered()[0]


def test_check_tells_a_stale_readme_from_a_fresh_one(project):
    project.record("a.json", [result(1, 200e-6, baseline=None)])
    status, errors = project.run_tool("--check")
    assert status == 1
    assert errors.splitlines() == ["ladder table: README.md is not that of the newest records; run ./ladder table"]
    assert project.readme.read_text() == README
    assert project.run_tool() == (0, "")
    assert project.run_tool("--check") == (0, "")
    project.record("b.json", [result(1, 300e-6, baseline=None)], created="2026-02-01T00:00:00Z")
    assert project.run_tool("--check")[0] == 1


def test_check_misses_no_picture(project):
    project.record("a.json", [result(1, 200e-6)])
    text, pictures = project.rendered()
    project.readme.write_text(text)
    status, errors = project.run_tool("--check")
    assert (status, "ladder_toy_fprop.svg" in errors) == (1, True)
    ((path, (title, data)),) = pictures.items()
    path.write_text(f"<svg><!-- figures {generated.digest(title, data)} --></svg>")
    assert project.run_tool("--check") == (0, "")


def test_the_front_page_has_a_line_a_promoted_pass(project):
    project.record("a.json", [result(1, 200e-6, baseline=None)])
    project.readme.write_text("<!-- training:begin promoted -->\n<!-- training:end -->\n")
    assert "*Nothing is promoted yet: " in project.rendered()[0]
    table = project.root / "runtime" / "promoted" / "h200.txt"
    table.parent.mkdir(parents=True)
    times = "10.0 us warm  20.0 cold"
    table.write_text(
        f"toy/fprop  n32 c64 bf16  v02_tile  {times}  cuDNN  30.0 warm  abc\n"
        f"toy/fprop  n32 c8 bf16  v01_naive  {times}  -  -  abc\n"
        f"toy/fprop  n32 c8 fp32  v03_split  {times}  cuDNN  10.0 warm  abc\n"
        f"toy/fprop  n1 c8 bf16  v03_split  {times}  cuDNN  10.0 warm  abc\n"
        f"toy/dgrad  n32 c64 bf16  v01_naive  {times}  -  -  abc\n"
        f"other/forward  n32 c64 bf16  v01_naive  {times}  cuDNN  30.0 warm  abc\n"
    )
    shapes = project.root / "dev" / "other" / "shapes.txt"  # the U-Net has not that layer
    shapes.parent.mkdir()
    shapes.write_text("[perf]\nlarge: n32 c64\n")
    text, _ = project.rendered()
    assert re.findall(r"^\| \[.*", text, re.MULTILINE) == [
        "| [toy/fprop](dev/toy/README.md) | 3.00 | 3.00 to 3.00 | 1 of 2 | cuDNN "
        "| [v01_naive](dev/toy/fprop/v01_naive.cu) (1), [v02_tile](dev/toy/fprop/v02_tile.cu) (1) |"
    ]
    assert "**NVIDIA H200**, bf16:" in text
    assert "No library was timed beside [toy/dgrad](dev/toy/README.md)." in text
    assert project.run_tool("--check")[0] == 1


def test_broken_records_are_one_line_each_and_change_nothing(project):
    project.record("good.json", [result(1, 200e-6)])
    whole = (project.root / "results" / "h200" / "good.json").read_text()
    project.left_out("")
    project.left_out("[]")
    project.left_out("not json")
    project.left_out(whole[: len(whole) // 2])
    project.left_out(whole.replace('"problem"', '"question"'))
    project.left_out(whole.replace('"median": 0.0002', '"median": "quick"'))
    project.left_out(whole.replace("ladder.record/2", "ladder.record/3"))


REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1av' for 'sm_80'
ptxas info    : Function properties for _Z1av
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 17408 bytes smem, 408 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1bv' for 'sm_90a'
ptxas info    : Function properties for _Z1bv
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""
SERIALIZED = (
    "ptxas info    : (C7520) Potential Performance Loss: wgmma.mma_async instructions are serialized due to program "
    "dependence on compiler-inserted WG.AR in divergent path in the function '_Z1bv'\n"
)


def test_a_report_is_read():
    a, b = resources.parse(REPORT, "v01_x.cu")
    assert (a["kernel"], a["arch"], a["registers"], a["static_smem_bytes"], a["spill_store_bytes"]) == (
        "_Z1av",
        "sm_80",
        32,
        17408,
        0,
    )
    assert (
        b["arch"],
        b["registers"],
        b["static_smem_bytes"],
        b["stack_bytes"],
        b["spill_store_bytes"],
        b["spill_load_bytes"],
    ) == ("sm_90a", 255, 0, 16, 12, 8)


def test_only_a_silent_spill_is_a_complaint():
    kernels = resources.parse(REPORT, "v01_x.cu")
    silent = "// Idea:   x.\n\nint Spills;\n// Spills: too late\n"
    honest = "// Idea:   x.\n// Spills: 20 bytes on sm_90a; fewer registers would cost a stage.\n\nint x;\n"
    assert len(resources.complaints(kernels, lambda _: silent)) == 1
    assert "_Z1bv spills on sm_90a" in resources.complaints(kernels, lambda _: silent)[0]
    assert resources.complaints(kernels, lambda _: honest) == []


def test_the_resources_of_one_pass(tmp_path, capsys):
    (file,) = (resources.ROOT / "dev/silu/backward").glob("v01_*.cu")
    report = resources.object_of(file, tmp_path).with_suffix(".o.ptxas")
    assert resources.main(["silu/backward", "--build", str(tmp_path)]) == 1
    assert capsys.readouterr() == ("", f"no ptxas report in {tmp_path}; build first: ./ladder build --preset cuda\n")
    report.parent.mkdir(parents=True)
    report.write_text(REPORT)
    resources.main(["silu/backward", "--build", str(tmp_path)])
    heading, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heading[:4] == ["layer", "pass", "version", "arch"]
    assert rows == [
        ["silu", "backward", file.stem, "sm_80", "1", "32", "17408", "0"],
        ["silu", "backward", file.stem, "sm_90a", "1", "255", "0", "20"],
    ]
    resources.main(["silu/forward", "--build", str(tmp_path)])
    assert capsys.readouterr().out == ""


def test_serialized_wgmma_is_a_complaint(tmp_path):
    build = tmp_path
    for file in resources.sources():
        source = file.relative_to(resources.ROOT)
        report = build / "CMakeFiles" / f"ladder_{source.parts[1]}.dir" / f"{source}.o.ptxas"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(REPORT + (SERIALIZED if source.name == "v09_wgmma_halo.cu" else ""))
    assert resources.collect(build)[1] == [
        "dev/conv3x3/fprop/v09_wgmma_halo.cu: ptxas serializes the wgmma instructions of "
        f"{resources.demangle(['_Z1bv'])['_Z1bv']}: program dependence on compiler-inserted WG.AR in "
        "divergent path; a wgmma_fence() belongs after every wait, before the multiplications "
        "that follow it"
    ]
