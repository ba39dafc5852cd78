"""`./ladder profile` without a GPU: ncu's table, the figures made of it, and every way that a run can end."""

import csv
import io
import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cli.errors import Failure, UsageError
from profiling import advice, keep, metrics, ncu, profile, record, show, where

ROOT = Path(__file__).resolve().parents[2]

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
NAME = (
    "void <unnamed>::conv3x3_fprop_v09_kernel<__nv_bfloat16, <unnamed>::Tile<4, 64, 2, 8>>"
    "(Problem, CUtensorMap_st, const float *, T1 *)"
)

# {column: (cell, unit)}: units of `--print-units base`; cells as ncu prints them, with thousands separators.
CELLS = {
    "ID": ("0", ""),
    "Process ID": ("15652", ""),
    "Process Name": ("bench_conv3x3", ""),
    "Host Name": ("127.0.0.1", ""),
    "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg": (
        '15652  "<default domain>:conv3x3/fprop/v09/n32 h64, w64 bf16:none:none:none:none:none:none"',
        "",
    ),
    "Kernel Name": (NAME, ""),
    "Context": ("1", ""),
    "Stream": ("13", ""),
    "Block Size": ("(384, 1, 1)", ""),
    "Grid Size": ("(132, 1, 1)", ""),
    "Device": ("0", ""),
    "CC": ("9.0", ""),
    "gpu__time_duration.sum": ("21,408", "ns"),
    "sm__throughput" + ELAPSED: ("48.25", "%"),
    "gpu__dram_throughput" + ELAPSED: ("17.15", "%"),
    "lts__throughput" + ELAPSED: ("37.93", "%"),
    "l1tex__throughput" + ELAPSED: ("56.59", "%"),
    "sm__pipe_tensor_cycles_active" + ELAPSED: ("48.30", "%"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("14.06", "%"),
    "sm__maximum_warps_per_active_cycle_pct": ("18.75", "%"),
    "launch__registers_per_thread": ("168", "register/thread"),
    "launch__shared_mem_per_block_dynamic": ("190,640", "byte/block"),
    "launch__shared_mem_per_block_static": ("0", "byte/block"),
    "launch__waves_per_multiprocessor": ("1", ""),
    "launch__occupancy_limit_registers": ("1", "block"),
    "launch__occupancy_limit_shared_mem": ("1", "block"),
    "launch__occupancy_limit_warps": ("5", "block"),
    "launch__occupancy_limit_blocks": ("32", "block"),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": ("0", "sector"),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": ("0", "sector"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("124,220", ""),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("1,242,200", ""),
    "lts__t_sector_hit_rate.pct": ("66.37", "%"),
    "l1tex__t_sector_hit_rate.pct": ("0", "%"),
    "dram__bytes_read.sum": ("16,777,216", "byte"),
    "dram__bytes_write.sum": ("1,000", "byte"),
    "gpc__cycles_elapsed.avg.per_second": ("1,730,000,000", "hz"),
    STALL.format("long_scoreboard"): ("1.05", "inst"),
    STALL.format("gmma"): ("2.10", "inst"),
    STALL.format("selected"): ("1.00", "inst"),
    STALL.format("barrier"): ("0.85", "inst"),
    STALL.format("membar"): ("0", "inst"),
    STALL.format("sleeping"): ("no data", "inst"),
}


def cells(**changes):
    """Returns CELLS with changed values, by the beginnings of their names; None removes a metric."""
    changed = dict(CELLS)
    for name, text in changes.items():
        metric = next(key for key in changed if key.startswith(name))
        if text is None:
            del changed[metric]
        else:
            changed[metric] = (text, changed[metric][1])
    return changed


def table(*launches, before=""):
    """Returns a table like that of `ncu --page raw --csv`: names, units, one row for each launch."""
    text = io.StringIO()
    rows = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    rows.writerow(launches[0])
    rows.writerow([unit for _, unit in launches[0].values()])
    for launch in launches:
        rows.writerow([value for value, _ in launch.values()])
    return before + text.getvalue()


def launch(version=9, problem="n32 h64 w64 c64 k64 bf16", idea="wgmma_halo", lower_bound=12.2e-6, name="NVIDIA H200"):
    """Returns a record like that of `bench --once --record`."""
    return {
        "schema": "ladder.record/2",
        "created": "2026-11-20T21:00:00Z",
        "seed": 1,
        "command": ["bench_conv3x3"],
        "environment": {
            "device": {"kind": "gpu", "name": name, "slug": "h200"},
            "commit": "9e0a464abc",
            "dirty": False,
        },
        "results": [
            {
                "layer": "conv3x3",
                "pass": "fprop",
                "version": version,
                "idea": idea,
                "problem": problem,
                "dtype": problem.split()[-1],
                "roofline_seconds": lower_bound,
                "min_read_bytes": 16e6,
                "min_write_bytes": 16e6,
                "times": None,
                "verdict": {"status": "UNCHECKED"},
            }
        ],
    }


def made(*launches, **record_changes):
    return record.make(launch(**record_changes), metrics.kernels(table(*launches)), "2025.3.1.0", "./ladder profile")


def only(**changes):
    found = metrics.kernels(table(cells(**changes)))
    assert len(found) == 1
    return found[0]


def test_figures_are_in_base_units():
    kernel = only()
    assert kernel.name == "conv3x3_fprop_v09_kernel<__nv_bfloat16, Tile<4, 64, 2, 8>>"
    assert (kernel.grid, kernel.block) == ([132, 1, 1], [384, 1, 1])
    expected = {
        "duration": 21.408e-6,
        "sm": 48.25,
        "dram": 17.15,
        "tensor": 48.3,
        "occupancy": 14.06,
        "theoretical_occupancy": 18.75,
        "registers": 168,
        "shared_memory": 190640,
        "spill_bytes": 0,
        "bank_conflicts": 124220,
        "conflict_share": 10.0,
        "l2_hit": 66.37,
        "l1_hit": 0,
        "dram_bytes": 16778216,
        "sm_clock": 1.73e9,
        "waves": 1,
    }
    for figure, value in expected.items():
        assert kernel.figures[figure] == pytest.approx(value, abs=abs(value) * 1e-9), figure


@pytest.mark.parametrize(
    ("text", "unit", "seconds"),
    [("21.41", "us", 21.41e-6), ("19.33", "msecond", 19.33e-3), ("2", "second", 2.0), ("1,500", "nsecond", 1.5e-6)],
)
def test_times_in_other_units_are_seconds_as_well(text, unit, seconds):
    changed = {**CELLS, "gpu__time_duration.sum": (text, unit)}
    assert metrics.kernels(table(changed))[0].figures["duration"] == pytest.approx(seconds, abs=5e-8)


def test_what_was_not_measured_is_none_and_never_zero():
    kernel = only(
        sm__pipe_tensor=None,
        lts__t_sector_hit_rate="n/a",
        l1tex__data_bank="no data",
        gpu__dram="",
        launch__registers="nan",
    )
    for figure in ("tensor", "fma", "l2_hit", "bank_conflicts", "conflict_share", "dram", "registers"):
        assert kernel.figures[figure] is None, figure


def test_spills_are_the_bytes_of_local_memory():
    kernel = only(l1tex__t_sectors_pipe_lsu_mem_local_op_ld="1,000", l1tex__t_sectors_pipe_lsu_mem_local_op_st="24")
    assert kernel.figures["spill_bytes"] == 1024 * 32
    assert only(l1tex__t_sectors_pipe_lsu_mem_local_op_ld=None).figures["spill_bytes"] is None


def test_conflicts_by_kind_are_added_where_no_sum_was_collected():
    changed = cells(l1tex__data_bank_conflicts=None)
    changed["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] = ("100", "")
    changed["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"] = ("20", "")
    assert metrics.kernels(table(changed))[0].figures["bank_conflicts"] == 120


def test_no_shared_memory_traffic_is_no_conflict():
    kernel = only(l1tex__data_bank_conflicts="0", l1tex__data_pipe_lsu_wavefronts="0")
    assert kernel.figures["conflict_share"] == 0


def test_the_limiter_is_what_allows_the_fewest_blocks():
    assert only().limiter == "registers, shared memory"
    assert only(launch__occupancy_limit_shared_mem="2").limiter == "registers"
    assert (
        only(
            launch__occupancy_limit_registers="9",
            launch__occupancy_limit_shared_mem="9",
            launch__occupancy_limit_warps="8",
        ).limiter
    ) == "warps"
    gone = {key: cell for key, cell in CELLS.items() if "occupancy_limit" not in key}
    assert metrics.kernels(table(gone))[0].limiter == ""


def test_stalls_are_shares_of_a_warps_time_without_selected():
    assert [reason for reason, _ in only().stalls] == ["gmma", "long scoreboard", "barrier"]
    assert only().stalls[0][1] == pytest.approx(2.1 / 5.0, abs=5e-8)


def test_stalls_of_samples_where_no_state_was_measured():
    changed = {key: cell for key, cell in CELLS.items() if "issue_stalled" not in key}
    for reason, count in (("wait", "30"), ("barrier", "50"), ("barrier_not_issued", "49"), ("selected", "20")):
        changed["smsp__pcsamp_warps_issue_stalled_" + reason] = (count, "warp")
    assert metrics.kernels(table(changed))[0].stalls == [("barrier", 0.5), ("wait", 0.3)]


def test_words_before_the_table_are_passed_over():
    text = table(CELLS, before="==PROF== Connected to process 1\nseed: 1\n\n")
    assert len(metrics.kernels(text)) == 1


def test_no_table_or_half_of_one_is_an_error():
    for text in ("", "==ERROR== nothing\n", table(CELLS).splitlines()[0] + "\n", '"ID","Name"\n"",""\n"1","k"\n'):
        with pytest.raises(metrics.BadReport):
            metrics.kernels(text)
    broken = table(CELLS).rstrip("\n")
    with pytest.raises(metrics.BadReport):
        metrics.kernels(broken[: broken.rindex(",")])


def first_line(**changes):
    return advice.advice(metrics.kernels(table(cells(**changes))), 12.2e-6)[0]


def test_a_unit_at_its_roof_is_named():
    assert first_line(gpu__dram="93.4") == "limited by DRAM: 93 % of its peak"
    assert first_line(sm__pipe_tensor="88") == "limited by the tensor pipe: 88 % of its peak"
    assert first_line(l1tex__throughput="97.01", gpu__dram="93") == "limited by L1 and shared memory: 97 % of its peak"


def test_near_a_roof_the_wait_is_named_as_well():
    said = advice.advice(metrics.kernels(table(cells(l1tex__throughput="66.6"))), 12.2e-6)
    assert said[0] == "nearest limit: L1 and shared memory, 67 % of its peak"
    assert "gmma" in said[1]


def test_at_a_roof_the_wait_is_no_news():
    assert "gmma" not in "\n".join(advice.advice(metrics.kernels(table(cells(gpu__dram="93"))), 12.2e-6))


def test_latency_names_the_wait_and_the_occupancy():
    line = first_line()
    assert line == "latency: the busiest unit, L1 and shared memory, reaches 57 % of its peak"
    said = advice.advice(metrics.kernels(table(CELLS)), 12.2e-6)
    assert said[1].startswith("42 % of a warp's time is gmma: it waits for warpgroup MMA"), said
    assert said[2] == "few warps to hide it: 14 % occupancy, limited by registers, shared memory"


def test_nothing_measured_is_said():
    bare = {key: CELLS[key] for key in list(CELLS)[:12]}
    assert "no unit's load was measured" in advice.advice(metrics.kernels(table(bare)), None)[0]


def test_spills_conflicts_and_small_grids_are_said_only_where_they_are():
    calm = "\n".join(advice.advice(metrics.kernels(table(CELLS)), 12.2e-6))
    for word in ("spilled", "conflicts", "grid"):
        assert word not in calm
    bad = cells(l1tex__t_sectors_pipe_lsu_mem_local_op_ld="9", l1tex__data_bank="900,000", launch__waves="0.25")
    said = "\n".join(advice.advice(metrics.kernels(table(bad)), 12.2e-6))
    for words in (
        "registers are spilled: 288 bytes",
        "conflicts: 72 %",
        "grid is too small: 25 %",
        "1.75 x the lower bound",
    ):
        assert words in said


def test_a_profile_holds_the_contract():
    data = json.loads(json.dumps(made(CELLS)))
    assert data["schema"] == "ladder.profile/1"
    assert set(data) == set(
        "schema created command environment seed layer pass version idea problem dtype lower_bound_seconds min_bytes kernels "
        "total ncu advice".split()
    )
    figure = data["kernels"][0]["figures"]["duration"]
    assert figure.pop("value") == pytest.approx(21.408e-6, abs=5e-8)
    assert figure == {"unit": "s", "text": "under the profiler, 1.75 x the lower bound of 12.20 us"}
    assert data["kernels"][0]["stalls"][0]["reason"] == "gmma"
    assert data["kernels"][0]["figures"]["fma"]["value"] is None
    assert data["total"]["theoretical_occupancy"]["text"] == "limited by registers, shared memory"


@pytest.mark.parametrize("lower_bound", [0, None])
def test_an_unknown_lower_bound_is_null(lower_bound):
    data = made(CELLS, lower_bound=lower_bound)
    assert data["lower_bound_seconds"] is None
    assert "lower bound" not in "\n".join(data["advice"])


def several():
    """Returns the profile of a filter kernel and a product kernel that runs twice."""
    first = cells(
        gpu__time="3,000", sm__pipe_tensor="0", launch__registers="40", dram__bytes_read="0", dram__bytes_write="8"
    )
    first["Kernel Name"] = ("conv3x3_fprop_v10_filter_kernel(Problem)", "")
    second = cells(gpu__time="2,500", sm__pipe_tensor="80")
    return made(first, second, second, lower_bound=4e-6)


def test_several_kernels_have_a_total():
    data = several()
    total = {figure: cell["value"] for figure, cell in data["total"].items()}
    assert total["duration"] == pytest.approx(8e-6, abs=5e-8)
    assert total["tensor"] == pytest.approx(80 * 5 / 8, abs=5e-8)
    assert (total["registers"], total["dram_bytes"]) == (168, 2 * 16778216 + 8)
    for figure in ("waves", "occupancy", "theoretical_occupancy"):
        assert total[figure] is None, figure
    assert total["conflict_share"] == pytest.approx(10, abs=5e-8)
    assert data["kernels"][0]["figures"]["duration"]["text"] == "under the profiler"


def test_of_several_kernels_the_one_with_the_most_time_is_judged():
    said = several()["advice"]
    assert said[0] == "of conv3x3_fprop_v09_kernel, 62 % of the time:"
    assert said[1] == "limited by the tensor pipe: 80 % of its peak"
    assert "2.00 x the lower bound" in said[-1]


def test_several_kernels_are_shown_as_a_table():
    text = show.profile(several())
    rows = {line.split()[0]: line.split() for line in text.splitlines() if "_kernel" in line and " us " in line}
    assert rows["conv3x3_fprop_v09_kernel"][1:6] == ["2", "5.00", "us", "62.5", "%"]
    assert rows["conv3x3_fprop_v10_filter_kernel"][1:4] == ["1", "3.00", "us"]
    assert text.count("top stall") == 1
    assert text.count("registers a thread") == 2  # for all kernels, and for the longest run
    assert "waves" not in text.split("  grid ")[0]


def test_with_every_metric_every_kernel_is_shown():
    text = show.profile(several(), raw=[("k", {"gpu__x": ("1", "ns")})])
    assert text.count("registers a thread") == 4
    assert re.search(r"every metric of k\n  gpu__x +1 ns", text)


def test_a_total_with_a_gap_is_unknown():
    data = made(CELLS, cells(lts__t_sector="n/a"))
    assert data["total"]["l2_hit"]["value"] is None


def test_the_files_name():
    assert record.name(made(CELLS)) == "2026-11-20_9e0a464_conv3x3_fprop_v09_bf16_n32-h64-w64-c64-k64"


@pytest.mark.parametrize("broken", [{}, {"results": []}, {**launch(), "results": [{}]}])
def test_a_broken_launch_record_is_one_line(broken):
    with pytest.raises(Failure, match="the launch's record is broken"):
        record.make(broken, metrics.kernels(table(CELLS)), "", "")


def test_every_figure_is_shown_with_its_meaning():
    text = show.profile(made(CELLS))
    for words in (
        "conv3x3/fprop v09 wgmma_halo, n32 h64 w64 c64 k64 bf16",
        "NVIDIA H200, commit 9e0a464, ",
        "clocks untouched (SM at 1.73 GHz)",
        "no benchmark time",
        "21.41 us",
        "1.75 x the lower bound",
        "48.3 %",
        "limited by registers, shared memory",
        "190.6 kB",
        "nothing is spilled",
        "124,220",
        "66.4 %",
        "0.52 x the least possible",
        "gmma: a warp waits for warpgroup MMA",
        "What this says",
    ):
        assert words in text
    assert all(len(line) < 125 for line in text.splitlines()), text


def test_a_missing_figure_is_a_dash():
    row = next(line for line in show.profile(made(cells(lts__t_sector="n/a"))).splitlines() if "L2 hit" in line)
    assert row.split() == ["L2", "hit", "rate", "-"]


def test_the_fma_pipe_stands_where_no_tensor_works():
    fp32 = cells(sm__pipe_tensor="0")
    fp32["sm__pipe_fma_cycles_active" + ELAPSED] = ("71.5", "%")
    assert "FMA pipe" in show.profile(made(fp32))
    assert "FMA pipe" not in show.profile(made(CELLS))


def rows(a, b):
    text = show.difference(record.side(a), record.side(b), record.UNITS)
    return text, {line[:28].strip(): line for line in text.splitlines()}


def test_changes_stand_in_a_column_and_the_biggest_are_marked():
    other = cells(gpu__time="42,816", sm__pipe_tensor="12.3", launch__registers="168", lts__t_sector="n/a")
    text, row = rows(made(CELLS), made(other, version=8, idea="mma_multistage"))
    assert "A: v09 wgmma_halo" in text
    assert "B: v08 mma_multistage" in text
    assert "x 2.00   <--" in row["duration"]
    assert "-36.0 points   <--" in row["tensor pipe"]
    assert row["registers a thread"].endswith("="), row["registers a thread"]
    assert row["L2 hit rate"].endswith("-"), row["L2 hit rate"]
    assert text.count("<--") <= 6


def test_the_same_twice_marks_nothing():
    assert "<--" not in rows(made(CELLS), made(CELLS))[0]


def test_none_and_some_have_no_ratio():
    _, row = rows(made(CELLS), made(cells(l1tex__t_sectors_pipe_lsu_mem_local_op_ld="9")))
    assert "from none   <--" in row["spills"]


def test_other_devices_are_named():
    assert "times do not compare" in rows(made(CELLS), made(CELLS, name="NVIDIA A100"))[0]
    assert "times do not compare" not in rows(made(CELLS), made(CELLS))[0]


def test_it_never_writes_over_a_file(tmp_path):
    folder = tmp_path / "profiles"
    names = [
        keep.publish(folder, "x", {".json": text, ".ncu-rep": "r" + text})[".json"].name
        for text in ("one", "two", "three")
    ]
    assert names == ["x.json", "x_2.json", "x_3.json"]
    assert (folder / "x.json").read_text() == "one"
    assert (folder / "x_2.ncu-rep").read_text() == "rtwo"


def test_two_files_keep_one_name(tmp_path):
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "x.json").write_text("mine")
    kept = keep.publish(folder, "x", {".ncu-rep": "report", ".json": "new"})
    assert kept[".ncu-rep"].name == "x_2.ncu-rep"
    assert (folder / "x.json").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["x.json", "x_2.json", "x_2.ncu-rep"]


# A bench that never runs, and a fake ncu that runs no program but writes ncu's files and prints its words.
BENCH = "#!/bin/sh\nexit 1\n"
NCU = """\
#!{python}
import json, pathlib, sys
if sys.argv[1] == "--version":
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36400000) (public-release)")
    sys.exit(0)
here = pathlib.Path(__file__).parent
if sys.argv[1] == "--import":
    print((here / "raw.csv").read_text(), end="")
    sys.exit(0)
(here / "arguments.json").write_text(json.dumps(sys.argv[1:]))
said = here / "says"
if said.exists():
    code, _, words = said.read_text().partition("\\n")
    print(words)
    sys.exit(int(code))
value = lambda flag: sys.argv[sys.argv.index(flag) + 1]
pathlib.Path(value("--export")).write_bytes(b"report")
launch = json.loads((here / "launch.json").read_text())
result = launch["results"][0]
result["version"], result["problem"] = int(value("--version")), value("--problem")
result["dtype"] = result["problem"].split()[-1]
pathlib.Path(value("--record")).write_text(json.dumps(launch))
"""


class Run:
    """The verb from its arguments to its files, with a fake GPU and a fake ncu."""

    def __init__(self, tmp_path, monkeypatch, capsys):
        self.capsys = capsys
        self.folder = tmp_path
        self.bench = self.folder / "partial/fprop-7/bench_conv3x3"
        self.built, self.broken = [], []
        self._program("ncu", NCU.format(python=sys.executable))
        (self.folder / "raw.csv").write_text(table(CELLS))
        (self.folder / "launch.json").write_text(json.dumps(launch()))
        self.out = self.folder / "out"
        monkeypatch.setattr(profile.device, "gpu", lambda: ("NVIDIA H200", ""))
        monkeypatch.setattr(profile.build, "build", self._build)
        monkeypatch.setattr(profile.build, "folder", lambda preset: self.folder)
        monkeypatch.setenv("PATH", str(self.folder))

    def _build(self, preset, targets, keep_going, part):
        self.built.append((preset, part and sorted(Path(source).name[:3] for source in part.sources)))
        self._program(part.target if part else targets[0], BENCH)
        return self.broken

    def _program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def profile(self, *arguments, layer="conv3x3"):
        assert profile.main([layer, "--out", str(self.out), *arguments]) == 0
        return self.capsys.readouterr().out

    def fails(self, kind, words, *arguments):
        with pytest.raises(kind, match=words) as caught:
            self.profile(*arguments)
        assert len(str(caught.value).splitlines()) == 1
        assert not self.out.exists()

    def ncu_says(self, code, words):
        (self.folder / "says").write_text(f"{code}\n{words}")

    def arguments(self):
        return json.loads((self.folder / "arguments.json").read_text())


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    return Run(tmp_path, monkeypatch, capsys)


def test_it_measures_prints_and_keeps(run):
    text = run.profile("--version", "v07")
    stem = "2026-11-20_9e0a464_conv3x3_fprop_v07_bf16_n32-h64-w64-c64-k64"
    assert "conv3x3/fprop v07" in text
    assert f"kept: {run.out / stem}.json" in text
    assert (run.out / f"{stem}.ncu-rep").read_bytes() == b"report"
    data = record.read(run.out / f"{stem}.json")
    assert (data["version"], data["ncu"]) == (7, "2025.3.1.0")
    run.profile("--version", "7")
    assert (run.out / f"{stem}_2.json").exists()


def test_only_what_is_profiled_is_compiled(run):
    run.profile("--version", "7")
    run.profile("--diff", "6", "8")
    assert run.built == [("profile", ["v07"]), ("profile", ["v06", "v08"])]
    assert str(run.folder / "partial/fprop-6-8/bench_conv3x3") in run.arguments()
    run.broken = [
        profile.build.Broken("conv3x3/dgrad", 7, "another"),
        profile.build.Broken("conv3x3/fprop", 6, "v06 does not"),
    ]
    run.profile("--version", "7")
    with pytest.raises(Failure, match="^v06 does not$"):
        run.profile("--diff", "7", "6")


def test_ncu_sees_one_launch_and_touches_no_clock(run):
    run.profile("--version", "7")
    said = run.arguments()
    for flag, value in (
        ("--clock-control", "none"),
        ("--nvtx-include", "regex:conv3x3.*/"),
        ("--version", "7"),
        ("--pass", "fprop"),
        ("--problem", "n32 h64 w64 c64 k64 bf16"),
    ):
        assert said[said.index(flag) + 1] == value
    assert "--nvtx" in said
    assert "--once" in said
    assert said.index("--export") < said.index(str(run.bench))


@pytest.mark.parametrize("arguments", [["--version", "7"], ["--version", "7", "--pass", "fprop"]])
def test_a_pass_may_stand_behind_its_layer(run, arguments):
    run.profile(*arguments, layer="conv3x3/fprop")
    said = run.arguments()
    assert said[said.index("--pass") + 1] == "fprop"


def test_problem_and_dtype_are_passed_on(run):
    run.profile("--version", "5")
    assert "n32 h64 w64 c64 k64 fp32" in run.arguments()
    run.profile("--version", "7", "--problem", "n1 h8 w8 c16 k16 tf32")
    assert "n1 h8 w8 c16 k16 tf32" in run.arguments()
    run.profile("--version", "7", "--problem", "res32")
    assert "n32 h32 w32 c128 k128 bf16" in run.arguments()
    run.profile("--version", "7", "--problem", "n1 h8 w8 c16 k16", "--dtype", "fp16", "--seed", "5")
    said = run.arguments()
    assert said[said.index("--dtype") + 1] == "fp16"
    data = record.read(next(run.out.glob("*_fp16_n1-h8-w8-c16-k16.json")))
    assert data["command"] == "./ladder profile conv3x3/fprop --version 7 --problem 'n1 h8 w8 c16 k16 fp16' --seed 5"


def test_full_lists_every_metric(run):
    assert "launch__occupancy_limit_blocks" not in run.profile("--version", "7")
    assert "launch__occupancy_limit_blocks" in run.profile("--version", "7", "--full")


def test_a_difference_of_two_versions_and_of_two_files(run, monkeypatch):
    text = run.profile("--diff", "v9", "7")
    assert "A: v09" in text
    assert "B: v07" in text
    files = sorted(map(str, run.out.glob("*.json")))
    monkeypatch.setattr(profile.device, "gpu", lambda: (None, "no GPU"))
    assert "A: v07" in run.profile("--diff", *files)
    assert profile.main(["--diff", *files]) == 0
    assert "B: v09" in run.capsys.readouterr().out


def test_no_gpu(run, monkeypatch):
    monkeypatch.setattr(profile.device, "gpu", lambda: (None, "no GPU: none here"))
    run.fails(Failure, "profile needs a GPU: no GPU: none here", "--version", "7")


def test_no_ncu(run, monkeypatch):
    (run.folder / "ncu").unlink()
    monkeypatch.setattr(where.glob, "glob", lambda pattern: [])
    run.fails(Failure, "no Nsight Compute .* package cuda-nsight-compute-13-0", "--version", "7")


def test_ncu_is_found_beside_the_toolkit_the_newest_first(run, monkeypatch):
    (run.folder / "ncu").unlink()
    for number in ("9.1", "13.0", "12.8"):
        (run.folder / f"cuda-{number}" / "bin").mkdir(parents=True)
        path = run._program(f"cuda-{number}/bin/ncu", "")
    real = where.glob.glob
    moved = lambda pattern: real(pattern.replace("/usr/local", str(run.folder)))  # noqa: E731
    monkeypatch.setattr(where.glob, "glob", moved)
    assert ncu.find() == str(run.folder / "cuda-13.0/bin/ncu")
    monkeypatch.setenv("CUDA_HOME", str(path.parents[1]))
    assert ncu.find() == str(path)


def test_no_permission(run):
    run.ncu_says(1, "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access")
    run.fails(Failure, "NVreg_RestrictProfilingToAdminUsers=0", "--version", "7")


def test_the_benchs_own_line_and_status_come_through(run):
    run.ncu_says(
        2,
        f"{run.bench}: problem 'n0 h8 w8 c16 k16': it lacks 'n'\n==ERROR== The application returned an error code (2).",
    )
    run.fails(UsageError, "it lacks 'n'", "--version", "7", "--problem", "n0 h8 w8 c16 k16")
    run.ncu_says(1, f"{run.bench}: out of memory\n==ERROR== The application returned an error code (1).")
    run.fails(Failure, "out of memory", "--version", "7")


def test_a_case_that_the_version_cannot_do(run):
    run.ncu_says(
        0, "conv3x3/fprop/v09_wgmma_halo/n1 c3 bf16  SKIP: c is no multiple of 8\n==WARNING== No kernels were profiled."
    )
    run.fails(UsageError, "SKIP: c is no multiple of 8", "--version", "9")


def test_no_launch_in_the_range(run):
    run.ncu_says(0, "==WARNING== No kernels were profiled.")
    run.fails(Failure, "saw no launch in its range", "--version", "9")


def test_ncus_other_errors(run):
    run.ncu_says(1, "==ERROR== Failed to prepare kernel for profiling")
    run.fails(Failure, "ncu: Failed to prepare kernel", "--version", "9")


def test_a_report_without_metrics(run):
    (run.folder / "raw.csv").write_text("==ERROR== broken\n")
    run.fails(Failure, "no table of metrics", "--version", "9")


@pytest.fixture
def bench():
    """Returns the bench program of the emulator's build, to check `profile`'s assumptions about it."""
    program = ROOT / "build" / "emulator" / "bench_conv3x3"
    if not program.exists():
        pytest.skip(f"{program.relative_to(ROOT)} is not built")
    return program


def test_the_record_of_one_launch_makes_a_profile(bench, tmp_path):
    file = tmp_path / "launch.json"
    subprocess.run(
        [
            bench,
            "--version",
            "7",
            "--pass",
            "fprop",
            "--problem",
            "n1 h8 w8 c16 k16 bf16",
            "--seed",
            "1",
            "--once",
            "--record",
            file,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    data = record.make(json.loads(file.read_text()), metrics.kernels(table(CELLS)), "", "")
    assert (data["version"], data["problem"], data["min_bytes"]) == (7, "n1 h8 w8 c16 k16 bf16", 8704)
    assert "_conv3x3_fprop_v07_bf16_n1-h8-w8-c16-k16" in record.name(data)


def wrong(words, *arguments, status=2):
    done = subprocess.run(
        [ROOT / "ladder", "profile", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert words in done.stderr


def test_wrong_usage_is_one_line_and_exit_2():
    wrong("one of --version V and --diff A B", "conv3x3")
    wrong("one of --version V and --diff A B", "conv3x3", "--version", "7", "--diff", "7", "8")
    wrong("no layer 'conv4x4'; there are: add, attention, concat, ", "conv4x4", "--version", "7")
    wrong("no layer 'conv4x4'; there are: add, attention, concat, ", "conv4x4/fprop", "--version", "7")
    wrong("conv3x3/dgrad and --pass fprop contradict each other", "conv3x3/dgrad", "--version", "7", "--pass", "fprop")
    wrong("profile needs a layer", "--version", "7")
    wrong("--version 'seven': no number, and no word of an idea", "conv3x3", "--version", "seven")
    wrong("version 'wmma': one, as in 7; that is v06_wmma, v07_wmma_double_buffer", "conv3x3", "--version", "wmma")
    wrong("did you mean 'res64'?", "conv3x3", "--version", "7", "--problem", "res46")
    wrong("expected 2 arguments", "conv3x3", "--diff", "7")


def test_without_a_gpu_it_says_so_and_exits_1():
    if profile.device.gpu()[0] is not None:
        pytest.skip("this machine has a GPU")
    wrong("profile needs a GPU: no GPU", "conv3x3", "--version", "7", status=1)


def test_a_profile_that_is_none(tmp_path):
    file = tmp_path / "a.json"
    wrong("No such file", "--diff", str(file), str(file), status=1)
    for text in ("{", "[]", '{"schema": "ladder.profile/1"}', '{"schema": "ladder.profile/1", "kernels": []}'):
        file.write_text(text)
        wrong("not a profile", "--diff", str(file), str(file), status=1)
    file.write_text('{"schema": "ladder.record/2"}')
    wrong("this tool reads ladder.profile/1", "--diff", str(file), str(file), status=1)
