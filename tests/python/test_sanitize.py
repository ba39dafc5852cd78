"""`./ladder sanitize` without a GPU: the verdicts proven, clean and found, and every way that a run can end."""

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cli.errors import Failure, UsageError
from profiling import sanitize, sanitizer, where

ROOT = Path(__file__).resolve().parents[2]

# Output of each tool for its planted fault.
FAULTS = {
    "memcheck": "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n"
    "=========     at void planted_memcheck_kernel<(bool)1>(int *)+0x70\n"
    "=========     by thread (0,0,0) in block (0,0,0)\n"
    "=========     Saved host backtrace up to driver entry point at kernel launch time\n"
    "=========         Host Frame: main [0x1] in planted\nplanted: unspecified launch failure\n"
    "========= ERROR SUMMARY: 129 errors\n",
    "racecheck": "========= Error: Race reported between Write access at void planted_racecheck_kernel<(bool)1>(int *)"
    "+0x80\n=========     and Read access at planted_racecheck_kernel+0xa0 [384 hazards]\n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n",
    "synccheck": "========= Barrier error detected. Divergent thread(s) in block\n"
    "=========     at void planted_synccheck_kernel<(bool)1>(int *, int)+0x90\n"
    "========= ERROR SUMMARY: 16 errors\n",
    "initcheck": "========= Uninitialized __global__ memory read of size 4 bytes\n"
    "=========     at void planted_initcheck_kernel<(bool)1>(const int *, int *)+0x50\n"
    "========= ERROR SUMMARY: 128 errors\n",
}


def silence(tool):
    if tool == "racecheck":
        return "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    return "========= COMPUTE-SANITIZER\nall well\n========= ERROR SUMMARY: 0 errors\n"


def test_silence_is_clean():
    for tool in sanitizer.TOOLS:
        assert sanitizer.outcome(silence(tool), 0) == sanitizer.Outcome("clean", 0)


def test_findings_are_counted_whatever_the_exit_status():
    for tool, count in (("memcheck", 129), ("racecheck", 1), ("synccheck", 16), ("initcheck", 128)):
        for code in (0, 1, 9):
            got = sanitizer.outcome(FAULTS[tool], code)
            assert (got.status, got.findings) == ("findings", count)
            assert got.report
    report = sanitizer.outcome(FAULTS["memcheck"], 9).report
    assert report[0] == "Invalid __global__ write of size 4 bytes"
    assert not [line for line in report if "Host Frame" in line]


def test_the_tools_exit_status_alone_is_a_finding():
    assert sanitizer.outcome(silence("memcheck"), 9).status == "findings"


def test_a_program_that_fails_by_itself():
    got = sanitizer.outcome("bench: 3 failed\n" + silence("memcheck").replace("all well\n", ""), 1)
    assert (got.status, got.reason) == ("failed", "the program's exit status was 1: bench: 3 failed")


def test_no_summary_is_broken_and_never_clean():
    for code in (0, 1, 255):
        got = sanitizer.outcome("========= Error: couldn't find exit code.", code)
        assert got.status == "broken"
        assert "couldn't find exit code" in got.reason
    assert sanitizer.outcome(silence("memcheck"), None).status == "broken"
    assert sanitizer.outcome("", 0).status == "broken"


def proof(tool, fault=None, fault_code=9, clean=None, clean_code=0):
    fault = FAULTS[tool] if fault is None else fault
    clean = silence(tool) if clean is None else clean
    return sanitizer.proof(tool, sanitizer.outcome(fault, fault_code), fault, sanitizer.outcome(clean, clean_code))


def test_every_tool_is_proven_by_its_own_fault():
    for tool in sanitizer.TOOLS:
        assert proof(tool) == ""


def test_a_tool_that_does_not_fire_is_not_proven():
    for tool in sanitizer.TOOLS:
        assert "did not fire" in proof(tool, fault=silence(tool), fault_code=0)
        assert "did not fire" in proof(tool, fault="crashed", fault_code=1)
        assert "did not fire" in proof(tool, fault=silence(tool), fault_code=9)


def test_another_fault_proves_nothing():
    for tool in sanitizer.TOOLS:
        for other in set(sanitizer.TOOLS) - {tool}:
            assert "something else" in proof(tool, fault=FAULTS[other])
    elsewhere = FAULTS["memcheck"].replace("planted_memcheck_kernel", "another_kernel")
    assert "something else" in proof("memcheck", fault=elsewhere)


def test_a_tool_that_cries_at_the_clean_twin_is_not_proven():
    for tool in sanitizer.TOOLS:
        assert "not silent" in proof(tool, clean=FAULTS[tool], clean_code=9)
        assert "not silent" in proof(tool, clean="", clean_code=0)
    assert "not silent" in proof("memcheck", clean=silence("memcheck"), clean_code=1)


def test_every_tool_has_a_fault_and_a_twin_in_the_sources():
    source = (ROOT / "tests" / "planted" / "planted.cu").read_text()
    for tool in sanitizer.TOOLS:
        assert f"planted_{tool}_kernel<true>" in source
        assert f"planted_{tool}_kernel<false>" in source


def test_the_clean_twins_compute_what_they_should():
    program = ROOT / "build" / "emulator" / "tests" / "planted"
    if not program.exists():
        pytest.skip(f"{program.relative_to(ROOT)} is not built")
    for tool in sanitizer.TOOLS:
        done = subprocess.run([program, tool, "clean"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
    for wrong in (["memcheck", "fault"], ["valgrind", "clean"], ["memcheck", "both"], []):
        assert subprocess.run([program, *wrong], stderr=subprocess.DEVNULL).returncode == 2


# A fake bench that writes its record, a fake planted program, and a fake compute-sanitizer that runs the program and
# then prints the file <tool>.<fault|clean|bench>.
BENCH = """\
#!{python}
import json, pathlib, sys
if "--dtype" in sys.argv and "fp32" in sys.argv:
    print("bench_conv3x3: nothing matched: no version of conv3x3/fprop has what was asked for", file=sys.stderr)
    sys.exit(2)
if "--benchmark_list_tests" in sys.argv:
    sys.exit(0)
checks = pathlib.Path(__file__).parent / "checks"
results = [{{"verdict": {{"status": word}}}} for word in checks.read_text().split()]
environment = {{"device": {{"name": "NVIDIA H200", "slug": "h200"}}, "commit": "9e0a464abc", "dirty": False}}
pathlib.Path(sys.argv[sys.argv.index("--record") + 1]).write_text(
    json.dumps({{"environment": environment, "results": results}}))
"""
PLANTED = "#!/bin/sh\nexit 0\n"
SANITIZER = """\
#!{python}
import pathlib, subprocess, sys
if sys.argv[1] == "--version":
    print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.1.0 (build 36400806) (public-release)")
    sys.exit(0)
here = pathlib.Path(__file__).parent
tool = sys.argv[sys.argv.index("--tool") + 1]
assert ("--num-cuda-barriers" in sys.argv) == (tool == "synccheck")
at = next(i for i, word in enumerate(sys.argv) if i > 0 and word.startswith("/"))
subprocess.run(sys.argv[at:], check=True)
kind = sys.argv[-1] if sys.argv[-1] in ("fault", "clean") else "bench"
code, _, words = (here / f"{{tool}}.{{kind}}").read_text().partition("\\n")
print(words, end="")
sys.exit(int(code))
"""


class Run:
    """The verb from its arguments to its record, with a fake GPU and a fake compute-sanitizer."""

    def __init__(self, tmp_path, monkeypatch, capsys):
        self.capsys = capsys
        self.folder = tmp_path
        (self.folder / "tests").mkdir()
        (self.folder / "dev" / "conv3x3" / "fprop").mkdir(parents=True)
        (self.folder / "dev" / "conv3x3" / "fprop" / "v01_naive.cu").write_text("// Idea:   as it is.\n")
        (self.folder / "dev" / "conv3x3" / "shapes.txt").write_text("[ci]\nsquare: n1 h8 w8 c16 k16\n")
        for name, text in (("bench_conv3x3", BENCH), ("tests/planted", PLANTED), ("compute-sanitizer", SANITIZER)):
            path = self.folder / name
            path.write_text(text.format(python=sys.executable))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (self.folder / "checks").write_text("PASS PASS SKIP")
        for tool in sanitizer.TOOLS:
            self.says(tool, "fault", 9, FAULTS[tool])
            self.says(tool, "clean", 0, silence(tool))
            self.says(tool, "bench", 0, silence(tool))
        monkeypatch.setattr(sanitize.device, "gpu", lambda: ("NVIDIA H200", ""))
        monkeypatch.setattr(sanitize, "_built", lambda programs: self.folder)
        monkeypatch.setattr(sanitize.paths, "ROOT", self.folder)
        monkeypatch.setenv("PATH", str(self.folder))

    def says(self, tool, kind, code, words):
        (self.folder / f"{tool}.{kind}").write_text(f"{code}\n{words}")

    def sanitize(self, *arguments):
        """Returns (exit status, stdout, stderr)."""
        return sanitize.main(list(arguments)), *self.capsys.readouterr()


@pytest.fixture
def tool(tmp_path, monkeypatch, capsys):
    return Run(tmp_path, monkeypatch, capsys)


def test_four_clean_tools(tool):
    status, out, _ = tool.sanitize("--record")
    assert status == 0, out
    for name in sanitizer.TOOLS:
        assert f"{name} ".ljust(11) + "proven" in out
        assert re.search(rf"{name} +yes +clean, 3 checks", out)
    stem = tool.folder / "results" / "h200"
    data = json.loads(next(stem.glob("*_9e0a464_sanitizer.json")).read_text())
    assert (data["schema"], data["sanitizer"]) == ("ladder.sanitizer/1", "2025.3.1.0")
    run = data["tools"]["synccheck"]["runs"][0]
    assert (run["status"], run["checks"]) == ("clean", {"PASS": 2, "SKIP": 1})
    assert "--num-cuda-barriers 65536" in run["command"]
    assert "bench_conv3x3 --pass fprop --version all --set ci --check --baseline none" in run["command"]
    text = next(stem.glob("*_sanitizer.txt")).read_text()
    assert "memcheck: reports its planted fault, not the clean twin" in text
    assert "clean; 2 PASS, 1 SKIP" in text
    tool.sanitize("--record")
    assert len(list(stem.glob("*_sanitizer_2.*"))) == 2


def test_a_finding_fails_and_is_shown(tool):
    tool.says("racecheck", "bench", 9, FAULTS["racecheck"].replace("planted_racecheck", "conv3x3_fprop_v08"))
    status, out, err = tool.sanitize("conv3x3")
    assert status == 1
    assert "conv3x3_fprop_v08_kernel" in out
    assert re.search(r"racecheck +yes +findings", out)
    assert "racecheck conv3x3/fprop: 1 finding" in err


def test_a_tool_that_does_not_fire_fails_and_is_not_used(tool):
    tool.says("synccheck", "fault", 0, silence("synccheck"))
    status, out, err = tool.sanitize()
    assert status == 1
    assert "synccheck  NOT PROVEN: it did not fire" in out
    assert re.search(r"synccheck +NO +not run", out)
    assert re.search(r"initcheck +yes +clean", out)
    assert "synccheck is not proven" in err


def test_a_failed_check_under_a_silent_tool_fails(tool):
    tool.says("memcheck", "bench", 1, "1 failed\n" + silence("memcheck"))
    status, _, err = tool.sanitize("--tool", "memcheck")
    assert status == 1
    assert "exit status was 1" in err


def test_a_bench_that_checked_nothing_is_not_clean(tool):
    (tool.folder / "checks").write_text("")
    status, _, err = tool.sanitize("--tool", "memcheck")
    assert status == 1
    assert "nothing was checked" in err


def test_only_the_asked_tools_run(tool):
    _, out, _ = tool.sanitize("conv3x3/fprop", "--tool", "memcheck,initcheck")
    assert "memcheck" in out
    assert "racecheck" not in out


def test_the_benchs_own_line_comes_before_any_tool(tool):
    (tool.folder / "memcheck.fault").unlink()  # running the tool would fail without this file
    with pytest.raises(UsageError, match="bench_conv3x3: nothing matched"):
        tool.sanitize("--dtype", "fp32")


def test_no_gpu(tool, monkeypatch):
    monkeypatch.setattr(sanitize.device, "gpu", lambda: (None, "no GPU: none here"))
    with pytest.raises(Failure, match="sanitize needs a GPU: no GPU: none here"):
        tool.sanitize()


def test_a_missing_tool_is_fetched_else_one_line(tool, monkeypatch):
    (tool.folder / "compute-sanitizer").unlink()
    asked = []

    def fail(what, pins, folder, log):
        asked.append((pins, folder))
        raise Failure("no network\nat all")

    monkeypatch.setattr(where.glob, "glob", lambda pattern: [])
    monkeypatch.setattr(sanitize.wheels, "install", fail)
    with pytest.raises(Failure, match="no compute-sanitizer .* could not be fetched") as caught:
        tool.sanitize()
    assert len(str(caught.value).splitlines()) == 1
    assert re.search(r"^nvidia-cuda-sanitizer-api==\d", asked[0][0][0])


def test_a_run_that_hangs_is_stopped(monkeypatch):
    process = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    monkeypatch.setattr(sanitize.say, "progress", lambda text: None)
    assert sanitize._wait(process, "hanging", limit=0.1) is None
    assert process.poll() is not None


def wrong(words, *arguments, status=2):
    done = subprocess.run(
        [ROOT / "ladder", "sanitize", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert words in done.stderr


def test_wrong_usage_is_one_line_and_exit_2():
    wrong("no layer 'conv4x4'; there are: add, attention, concat, ", "conv4x4")
    wrong("no version '70'", "conv3x3", "--version", "70")
    wrong("--set 'cii': conv3x3 has ci", "conv3x3", "--set", "cii")
    wrong("--dtype 'int8'", "--dtype", "int8")
    wrong("argument --version: it is empty", "--version", "")
    wrong("no tool 'valgrind'; there are: memcheck, racecheck, synccheck, initcheck", "--tool", "valgrind")
    wrong("unrecognized arguments: --fast", "--fast")


def test_without_a_gpu_it_says_so_and_exits_1():
    if sanitize.device.gpu()[0] is not None:
        pytest.skip("this machine has a GPU")
    wrong("sanitize needs a GPU: no GPU", status=1)
