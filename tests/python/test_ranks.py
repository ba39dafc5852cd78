"""`--gpus N`: processes, their variables, signals, statuses and ends, with fake_rank.py for a program."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli import launcher, ranks

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60
SCRIPT = """
import sys
from cli import launcher, options, ranks
ranks.GRACE_S = float(sys.argv[1])
{more}
sys.exit(options.run(lambda words: ranks.start(words[2:], int(words[1]), launcher.RankNumbers(), {arguments})))
"""


class Started:
    """`--gpus` as a process of its own around fake_rank.py."""

    def __init__(self, folder):
        self.folder = folder
        self.notes = folder / "notes"
        self.process = None

    def start(self, size, *plan, grace=30, arguments="", more="", environment=(), **popen):
        self.notes.mkdir()
        program = self.folder / "train_unet"
        program.write_text(f"#!{sys.executable} -IS\n{(ROOT / 'tests/python/fake_rank.py').read_text()}")
        program.chmod(0o755)
        script = SCRIPT.format(more=more, arguments=arguments)
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(grace), str(size), program, *plan],
            **{"stdin": subprocess.DEVNULL, **popen},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "tools"), "NOTES": str(self.notes), **dict(environment)},
        )
        return self

    def begun(self, size):
        """Waits until all ranks have noted their facts, and so handle signals."""
        until(lambda: self.notes.is_dir() and sum(bool(self.of(rank)) for rank in range(size)) == size)
        return self

    def of(self, rank):
        """A rank's notes."""
        file = self.notes / str(rank)
        return file.read_text().split("\n")[:-1] if file.exists() else []

    def facts(self, rank):
        return json.loads(self.of(rank)[0])

    def ended(self):
        """(status, stdout, stderr) of ./ladder. Fails if a rank is left."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        self.check_none_left()
        return self.process.returncode, out, err

    def check_none_left(self):
        for file in self.notes.iterdir():
            assert not is_running(self.facts(file.name)["pid"]), f"rank {file.name} is left"

    def clean_up(self):
        for file in self.notes.iterdir() if self.notes.is_dir() else ():
            with contextlib.suppress(ProcessLookupError):
                if is_running(pid := self.facts(file.name)["pid"]):
                    os.kill(pid, signal.SIGKILL)
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def until(condition):
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "too late"
        time.sleep(0.01)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def started(tmp_path):
    made = Started(tmp_path)
    yield made
    made.clean_up()


def test_ranks_of_this_host_have_a_world_of_their_own(started):
    foreign = {
        "CUDA_VISIBLE_DEVICES": "3,5",
        "LADDER_RENDEZVOUS": "elsewhere:1",
        "TORCHELASTIC_RUN_ID": "another",
        "WORLD_SIZE": "64",
    }
    started.start(3, "*:exit=0", environment=foreign, stdin=subprocess.PIPE)
    assert started.ended() == (0, "", "")
    facts = [started.facts(rank) for rank in range(3)]
    environments = [each["environment"] for each in facts]
    for rank, environment in enumerate(environments):
        assert (environment["RANK"], environment["LOCAL_RANK"]) == (str(rank), str(rank))
        assert (environment["WORLD_SIZE"], environment["LOCAL_WORLD_SIZE"]) == ("3", "3")
        assert environment["MASTER_ADDR"] == "127.0.0.1"
        assert environment["CUDA_VISIBLE_DEVICES"] == "3,5"
        assert not {"LADDER_RENDEZVOUS", "TORCHELASTIC_RUN_ID", "PYTHONPATH"} & environment.keys()
    for name in ("MASTER_PORT", "LADDER_RUN"):
        assert len({environment[name] for environment in environments}) == 1
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", int(environments[0]["MASTER_PORT"]) + 1))
    assert all(each["words"] == ["*:exit=0"] for each in facts)
    assert facts[0]["stdin"].startswith("pipe:") and [each["stdin"] for each in facts[1:]] == ["/dev/null"] * 2
    assert all(each["session"] == each["pid"] for each in facts), "a terminal's Ctrl-C would reach it twice"


def test_a_rank_holds_the_read_end_alone(started):
    started.start(2, "*:exit=0")
    assert started.ended()[0] == 0
    for rank in range(2):
        facts = started.facts(rank)
        above = {number for number in facts["descriptors"] if number > 2}
        assert int(facts["environment"]["LADDER_PARENT_PIPE"]) in above
        assert len(above) == 2, "the pipe, and the folder that lists them"


def test_two_runs_differ():
    first, second = launcher.environments(2), launcher.environments(2)
    assert first[0]["LADDER_RUN"] == first[1]["LADDER_RUN"] != second[0]["LADDER_RUN"]
    assert 1 <= int(first[0]["MASTER_PORT"]) <= 65535 - 16


def test_rank_0_finds_a_free_port_first(monkeypatch):
    """Rank 0 takes the first free of the 16 ports after MASTER_PORT."""
    found = iter([65535, 65521, 65520])

    class Probe(socket.socket):
        def getsockname(self):
            return ("127.0.0.1", next(found))

    monkeypatch.setattr(launcher.socket, "socket", Probe)
    assert launcher.environments(1)[0]["MASTER_PORT"] == "65519"


def test_one_gpu_is_the_program_in_our_place_without_variables(started):
    started.start(1, "*:out=hello,exit=7")
    assert started.ended() == (7, "hello\n", "")
    facts = started.facts("alone")
    assert facts["pid"] == started.process.pid
    assert not {"RANK", "WORLD_SIZE", "LADDER_RUN", "LADDER_PARENT_PIPE"} & facts["environment"].keys()


@pytest.mark.parametrize(
    ("status", "plan"),
    [
        (0, ["*:exit=0"]),
        (130, ["*:exit=130"]),
        (2, ["*:exit=2"]),
        (3, ["0:exit=0", "1:exit=3", "2:exit=0"]),
        (4, ["2:exit=4", "0:after=2,exit=1", "1:after=2,exit=1"]),
        (137, ["1:die=SIGKILL", "0:after=1,exit=1", "2:after=1,exit=1"]),
    ],
)
def test_the_status_is_of_all_or_the_first_that_is_not_0(started, status, plan):
    started.start(3, *plan)
    assert started.ended()[0] == status


def test_of_ends_that_are_seen_together_a_signal_is_the_first():
    ended = [subprocess.Popen(["/bin/sh", "-c", script]) for script in ("exit 1", "exit 0", "kill -SEGV $$", "exit 3")]
    for process in ended:
        process.wait()
    ends = ranks._Ends(ended)
    ends.wait(None)
    assert list(ends.statuses.items()) == [(2, -signal.SIGSEGV), (0, 1), (1, 0), (3, 3)]


def test_ranks_that_stay_after_a_death_are_killed(started):
    started.start(3, "1:exit=5", "0:hang", "2:stop", grace=0.2)
    assert started.ended() == (
        5,
        "",
        "ladder: train_unet: killed, still there 0.2 s after the end of rank 1: rank 0, 2\n",
    )


def test_ranks_get_time_to_leave_after_a_death(started):
    started.start(2, "1:exit=5", "0:after=1,pause=0.3,out=left,exit=5", grace=20)
    assert started.ended() == (5, "left\n", "")


@pytest.mark.parametrize("status", [0, 130])
def test_a_rank_that_ended_in_order_hurries_no_other(started, status):
    """Rank 0 writes a checkpoint after the others' last step."""
    started.start(2, f"1:exit={status}", f"0:after=1,pause=0.5,out=written,exit={status}", grace=0.1)
    assert started.ended() == (status, "written\n", "")


@pytest.mark.parametrize(
    ("says", "plan"),
    [
        ("ladder: train_unet: rank 1 of 2 ended by SIGSEGV\n", ["1:die=SIGSEGV", "0:after=1,exit=0"]),
        (
            "ladder: train_unet: rank 0 of 2 ended by SIGKILL; rank 1 of 2 ended by SIGKILL\n",
            ["*:pause=0.1,die=SIGKILL"],
        ),
        ("its own words\n", ["1:die=SIGKILL", "0:after=1,err=its own words,exit=1"]),
        ("", ["0:exit=1", "1:exit=1"]),
    ],
)
def test_a_death_is_told_once(started, says, plan):
    started.start(2, *plan)
    status, _, err = started.ended()
    assert status != 0
    if "rank 0 of 2" in says:  # either may end first
        err, says = (sorted(text[len("ladder: train_unet: ") : -1].split("; ")) for text in (err, says))
    assert err == says


def test_a_killed_rank_is_named_besides_the_signal_that_ended_another(started):
    started.start(2, "1:die=SIGABRT", "0:hang", grace=0.1)
    assert started.ended() == (
        134,
        "",
        "ladder: train_unet: rank 1 of 2 ended by SIGABRT\n"
        "ladder: train_unet: killed, still there 0.1 s after the end of rank 1: rank 0\n",
    )


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_arrives_once_at_every_rank(started, name):
    started.start(3, "*:signals=1,pause=0.2,exit=130").begun(3)
    os.killpg(started.process.pid, signal.Signals[name])  # to the whole group, as from a terminal
    assert started.ended() == (130, "", "")
    assert [started.of(rank)[1:] for rank in range(3)] == [[name]] * 3


def test_a_second_ctrl_c_arrives_too_and_a_third_does_not(started):
    started.start(2, "*:signals=2,pause=0.5,exit=130").begun(2)
    for count in (1, 2):
        started.process.send_signal(signal.SIGINT)
        until(lambda count=count: all(len(started.of(rank)) == 1 + count for rank in range(2)))
    started.process.send_signal(signal.SIGINT)
    assert started.ended() == (130, "", "")
    assert [started.of(rank)[1:] for rank in range(2)] == [["SIGINT"] * 2] * 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_other_signals_are_no_second_ctrl_c(started, name):
    """A terminal that closes sends SIGHUP twice: from the shell and from the kernel."""
    started.start(2, "*:signals=1,pause=0.5,exit=130").begun(2)
    started.process.send_signal(signal.Signals[name])
    until(lambda: all(len(started.of(rank)) == 2 for rank in range(2)))
    started.process.send_signal(signal.Signals[name])
    assert started.ended() == (130, "", "")
    assert [started.of(rank)[1:] for rank in range(2)] == [[name]] * 2


def test_ranks_that_stay_after_a_second_signal_are_killed(started):
    started.start(2, "0:hang", "1:signals=1,exit=130", grace=0.2).begun(2)
    started.process.send_signal(signal.SIGINT)
    until(lambda: len(started.of(0)) == 2 and not is_running(started.facts(1)["pid"]))
    started.process.send_signal(signal.SIGINT)
    assert started.ended() == (
        130,
        "",
        "ladder: train_unet: killed, still there 0.2 s after the second signal: rank 0\n",
    )


def test_ranks_without_handlers_end_by_the_signal_and_nothing_is_said(started):
    started.start(2, "*:default,hang").begun(2)
    started.process.send_signal(signal.SIGTERM)
    assert started.ended() == (143, "", "")


def test_a_signal_between_two_starts_reaches_both(started):
    more = (
        "import os, signal\nstart = ranks._started\n"
        "def interrupted(command, environment, pipe, rank, hidden):\n"
        "    if rank == 1: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return start(command, environment, pipe, rank, hidden)\n"
        "ranks._started = interrupted\n"
    )
    started.start(2, "*:signals=1,exit=130", more=more)
    assert started.ended()[0] == 130


def test_nohup(started):
    started.start(2, "*:signals=1,exit=130", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)).begun(2)
    started.process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    started.process.send_signal(signal.SIGTERM)
    assert started.ended() == (130, "", "")
    assert [started.of(rank)[1:] for rank in range(2)] == [["SIGTERM"]] * 2


@pytest.mark.parametrize("arguments", ["", "beside=True, hidden='wrote'"])
def test_ranks_end_with_a_killed_ladder(started, arguments):
    started.start(3, "*:hang", arguments=arguments).begun(3)
    started.process.kill()
    until(lambda: not any(is_running(started.facts(rank)["pid"]) for rank in range(3)))
    assert [started.of(rank)[1:] for rank in range(3)] == [["alone"]] * 3
    assert started.process.wait() == -signal.SIGKILL


def test_ranks_end_where_not_all_can_be_started(started):
    more = (
        "import errno, os, time\nstart = ranks._started\n"
        "def refused(command, environment, pipe, rank, hidden):\n"
        "    while rank == 2 and len(os.listdir(os.environ['NOTES'])) < 2: time.sleep(0.01)\n"
        "    if rank == 2: raise OSError(errno.EAGAIN, 'no more processes')\n"
        "    return start(command, environment, pipe, rank, hidden)\n"
        "ranks._started = refused\n"
    )
    started.start(3, "*:deaf,hang", more=more)
    assert started.ended() == (1, "", "ladder: [Errno 11] no more processes\n")


def test_one_line_of_rank_0_is_left_out(started):
    plan = ("0:out=first,out=wrote a.npy,out=last,exit=0", "1:exit=0")
    started.start(2, *plan, arguments="beside=True, hidden='wrote a.npy'")
    assert started.ended() == (0, "first\nlast\n", "")


def test_a_reader_that_has_enough_ends_all(started):
    started.start(2, "0:out=first,pause=0.3,out=second,pause=0.1,out=third,exit=9", "1:after=0,exit=1")
    assert started.process.stdout.readline() == "first\n"
    started.process.stdout.close()
    assert started.process.wait(timeout=LIMIT_S) != 0
    started.check_none_left()


def test_sixteen_ranks(started):
    started.start(16, "*:exit=0")
    assert started.ended() == (0, "", "")
