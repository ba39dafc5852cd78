"""`./ladder train --compare`: the verdict on steps replayed in turn, from made times; what the verb writes; the clock."""

import json
import random
import sys
import time

import pytest

from cli import device, train
from compare import steps
from test_train_verbs import verbs  # noqa: F401 (a fixture)

STEP_US = 5400.0


def side(name, changed_by, seed, rounds=100, noise=0.002, loss=(0.5, 0.5)):
    """A side whose replays take STEP_US, changed by a share; the clock drifts by 5 % on the way, for all sides alike."""
    chance = random.Random(seed)
    replays = 2 * rounds
    drift = [1 + 0.05 * at / replays for at in range(replays)]
    seconds = [1e-6 * STEP_US * (1 + changed_by) * each * (1 + chance.gauss(0, noise)) for each in drift]
    versions = [{"pass": "conv3x3/fprop", "problem": "n2 bf16", "version": f"{name}_tile", "operations": 3}]
    return {"name": f"conv3x3/fprop={name}", "versions": versions, "losses": list(loss), "seconds": seconds}


def record(*sides, emulator=False):
    made = {
        "schema": steps.SCHEMA,
        "emulator": emulator,
        "rounds": len(sides[0]["seconds"]) // 2,
        "device_bytes": 3 << 30,
        "began": 0.0,
        "ended": 1.0,
        "sides": list(sides),
    }
    return made


def statuses(*sides):
    return [verdict["status"] for verdict in steps.verdicts(record(*sides))]


@pytest.mark.parametrize("seed", range(5))
def test_half_a_percent_is_seen_through_ten_times_the_drift(seed):
    a = side("v09", 0, 2 * seed)
    for changed_by, status in ((-0.005, "FAST"), (0.005, "SLOW"), (0, "SAME"), (0.0005, "SAME")):
        assert statuses(a, side("v14", changed_by, 2 * seed + 1)) == [status], changed_by


def test_the_difference_is_in_microseconds_and_in_percent():
    (verdict,) = steps.verdicts(record(side("v09", 0, 1, noise=0.0001), side("v14", -0.01, 2, noise=0.0001)))
    assert verdict["us"] == pytest.approx(-0.01 * 1.025 * STEP_US, rel=0.01)  # in the middle of the drift
    assert verdict["us_low"] < verdict["us"] < verdict["us_high"] < 0
    assert verdict["low"] < verdict["ratio"] < verdict["high"] < 1
    assert verdict["ratio"] == pytest.approx(0.99, abs=1e-4)


def test_each_side_is_held_against_the_first():
    assert statuses(side("v09", 0, 1), side("v13", 0.01, 2), side("v14", -0.01, 3)) == ["SLOW", "FAST"]


def test_what_is_not_sure_is_not_called():
    few = [side(name, changed_by, seed, rounds=8) for name, changed_by, seed in (("v09", 0, 1), ("v14", -0.1, 2))]
    assert statuses(*few) == ["AMBIGUOUS"]
    assert statuses(side("v09", 0, 1, noise=0.05), side("v14", -0.005, 2, noise=0.05)) == ["AMBIGUOUS"]


def test_a_wrong_side_has_no_verdict():
    a, faster = side("v09", 0, 1), -0.01
    (verdict,) = steps.verdicts(record(a, side("v14", faster, 2, loss=(0.5, 0.5001))))
    assert (verdict["status"], "a race: the loss of conv3x3/fprop=v14" in verdict["reason"]) == ("UNTRUSTED", True)
    (verdict,) = steps.verdicts(record(a, side("v14", faster, 2, loss=(0.52, 0.52))))
    assert (verdict["status"], "one side is wrong" in verdict["reason"]) == ("UNTRUSTED", True)
    assert statuses(a, side("v14", faster, 2, loss=(0.5001, 0.5001))) == ["FAST"]


SMI = """#!{python}
import time
from datetime import datetime
for clock in ("1700", "1755", "[N/A]", "1800"):
    print(datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3], clock, "650.5", sep=", ", flush=True)
    time.sleep(0.05)
print("2025/01/01 00", flush=True)
time.sleep(60)
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


def test_clock_and_power_are_those_of_the_replays(smi):
    began = time.time() - 1
    with device.Watch() as watch:
        time.sleep(0.8)
    assert watch.between(began, time.time()) == {
        "clocks.sm": {"median": 1755, "low": 1700, "high": 1800},
        "power.draw.instant": {"median": 650.5, "low": 650.5, "high": 650.5},
    }
    assert watch.between(began, began + 0.5) is None


def test_without_nvidia_smi_there_is_no_clock(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with device.Watch() as watch:
        pass
    assert watch.between(0, 1e12) is None


def compared(verbs, made, *arguments):  # noqa: F811
    """The verb's lines, train_unet being a script that writes `made`."""
    (verbs.scratch / "made.json").write_text(json.dumps(made))
    verbs.program(
        verbs.SCRIPT
        + 'for word; do case $word in --json=*) cp "$(dirname "$0")/../../made.json" "${word#--json=}";; esac; done\n'
    )
    return verbs.verb(train, "--compare", "conv3x3/fprop=v09,v14", *arguments)


def test_the_verb_judges_and_keeps_the_record(verbs):  # noqa: F811
    file = verbs.scratch / "kept.json"
    words = compared(verbs, record(side("v09", 0, 1), side("v14", -0.01, 2)), "--json", str(file), "--rounds=7")
    assert {"--compare=conv3x3/fprop=v09,v14", "--rounds=7"} <= set(words)
    assert not any(word == f"--json={file}" for word in words), "the program would write over a good record"
    assert not (verbs.scratch / "runs").exists(), "a comparison is no run"
    kept = json.loads(file.read_text())
    assert [verdict["status"] for verdict in kept["verdicts"]] == ["FAST"]
    assert kept["command"].startswith("./ladder train --compare conv3x3/fprop=v09,v14 --json ")


def test_the_program_s_failure_is_the_verb_s_and_writes_nothing(verbs):  # noqa: F811
    verbs.program("#!/bin/sh\nexit 2\n")
    file = verbs.scratch / "kept.json"
    verbs.verb(train, "--compare", "conv3x3/fprop=v09,v99", "--json", str(file))
    assert (verbs.status, file.exists()) == (2, False)


def test_what_people_read():
    made = record(side("v09", 0, 1, noise=1e-9), side("v14", -0.01, 2, noise=1e-9))
    made["verdicts"] = steps.verdicts(made)
    clock = {"median": 1755.0, "low": 1700.0, "high": 1800.0}
    made["machine"] = {"clocks.sm": clock, "power.draw.instant": {"median": 650.5, "low": 1, "high": 700}}
    lines = list(steps.lines(made))
    assert lines[0].startswith("A  55") and lines[0].endswith(" us  conv3x3/fprop=v09, 3 x conv3x3/fprop v09_tile")
    assert lines[2].startswith("   FAST  -55.") and "-1.00 [-1.00 .. -1.00] %" in lines[2]
    assert lines[3] == "rounds: 100; 3072 MiB for 2 steps; SM clock 1755 MHz (1700 to 1800), 650 W"


def test_the_emulator_s_times_are_no_speed():
    made = record(side("v09", 0, 1), side("v14", -0.5, 2), emulator=True)
    assert steps.verdicts(made) is None
    made["verdicts"] = None
    lines = list(steps.lines(made))
    assert "say nothing of a GPU" in lines[0]
    assert all(" us emulated  " in line for line in lines[1:3]) and "FAST" not in "".join(lines)


def test_what_the_verb_refuses(verbs):  # noqa: F811
    compare = ("--compare", "conv3x3/fprop=v09,v14")
    for says, *arguments in (
        ("--compare and --explain exclude|--explain and --compare exclude", *compare, "--explain"),
        ("exclude each other", *compare, "--budget", "x.json"),
        ("exclude each other", *compare, "--resume"),
        ("--json needs --compare", "--json", "x.json"),
        ("--rounds needs --compare", "--rounds", "3"),
        ("--rounds: a whole number", *compare, "--rounds", "0"),
        ("no folder 'no/where'", *compare, "--json", "no/where/x.json"),
        ("leave no log", *compare, "--tensorboard"),
    ):
        verbs.refuses(says, train, *arguments)
