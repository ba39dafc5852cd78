"""The PyTorch worker's protocol and the timer of its timer, without PyTorch."""

import contextlib
import io
import json
import subprocess
import sys
import types
from pathlib import Path
from unittest import mock

import pytest

import groupnorm
import worker

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "reference" / "pytorch"


def case(problem, pass_name="forward", search="all"):
    return worker.Case("groupnorm", pass_name, problem, search, [])


class Stub:
    def hello(self):
        return {"library": "Stub 1", "empty_seconds": 1e-6}

    def prepare(self, what):
        return {"plans": [], "heuristic": what["problem"], "makes": []}

    def sample(self, name):
        if name == "ill":
            raise RuntimeError("CUDA error:\nan illegal memory access")
        return {"seconds": 2e-6}

    def answer(self, name):
        return {}


def ask(*questions, make=Stub):
    said = io.StringIO()
    worker.serve(io.StringIO("".join(question + "\n" for question in questions)), said, make)
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_every_question_has_one_line_for_an_answer():
    hello, *answers = ask('{"prepare": {"problem": "n1"}}', '{"sample": "eager"}', '{"answer": "eager"}')
    assert hello["library"] == "Stub 1"
    assert answers == [{"plans": [], "heuristic": "n1", "makes": []}, {"seconds": 2e-6}, {}]


def test_an_error_is_one_line_and_not_the_end():
    _, *answers = ask('{"sample": "ill"}', "rubbish", '{"hello": 1}', "[]", '{"sample": "eager"}')
    assert answers[0] == {"error": "RuntimeError: CUDA error: an illegal memory access"}
    assert all("error" in answer for answer in answers[1:4]), answers
    assert answers[4] == {"seconds": 2e-6}


def test_who_cannot_start_says_why():
    def make():
        raise worker.Refusal("python3 has no module torch")

    assert ask('{"sample": "eager"}', make=make) == [{"error": "python3 has no module torch"}]


def test_the_script_takes_its_folder_away_whatever_happens(tmp_path):
    # A module torch that talks and fails stands in for PyTorch, wherever this runs.
    (tmp_path / "torch.py").write_text("print('noise')\nraise ImportError('broken', name='torch')\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, SCRIPTS / "groupnorm.py", folder],
        input="",
        text=True,
        timeout=60,
        capture_output=True,
        env={"PYTHONPATH": tmp_path, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.stdout == '{"error": "python3 has no module torch"}\n', done.stderr
    assert "noise" in done.stderr
    assert not folder.exists()


@pytest.mark.parametrize("arguments", [[], ["folder", "--problem", "n1"]])
def test_wrong_usage(arguments):
    done = subprocess.run(
        [sys.executable, "-B", SCRIPTS / "groupnorm.py", *arguments], timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "either a folder" in done.stderr


def test_words_of_a_line():
    line = case("n32 h64 w48 c96 g16 gelu-tanh no-affine mean20000 bf16")
    assert [line.number(letter) for letter in "nhwcg"] == [32, 64, 48, 96, 16]


def test_plans_of_a_search():
    names = [(plan.name, plan.search) for plan in groupnorm.plans(mock.Mock(), case("n1 g2"), {})]
    assert names[0] == ("PyTorch eager nhwc", "heuristic"), "what a user gets who changes nothing"
    assert [name for name, search in names if search == "heuristic"] == ["PyTorch eager nhwc"]
    assert ("PyTorch compile nhwc", "listed") in names
    assert len(set(names)) == 6


def test_epsilon():
    assert groupnorm.epsilon_of(case("n1 g2 eps1e-06 bf16")) == 1e-6
    assert groupnorm.epsilon_of(case("n1 g2 bf16")) == 1e-5


def test_activations():
    functional = types.SimpleNamespace(relu="relu", silu="silu", mish="mish", gelu=lambda z, approximate: approximate)
    torch = types.SimpleNamespace(nn=types.SimpleNamespace(functional=functional))
    for word in ("relu", "silu", "mish"):
        assert groupnorm.activation_of(torch, case(f"n1 {word} bf16")) == word
    assert groupnorm.activation_of(torch, case("n1 gelu-tanh bf16"))(0) == "tanh"
    assert groupnorm.activation_of(torch, case("n1 bf16"))(3) == 3


class FakeTorch:
    """A device whose stream goes on `late` times before everything is enqueued."""

    def __init__(self, late):
        self.late = late
        self.log = []
        self.cuda = types.SimpleNamespace(
            Stream=lambda: None,
            stream=lambda _: contextlib.nullcontext(),
            synchronize=lambda: self.log.append("wait"),
            get_device_properties=lambda _: types.SimpleNamespace(L2_cache_size=50 << 20),
            Event=self.event,
            _sleep=lambda cycles: self.log.append(("hold", cycles)),
        )
        self.uint8 = None
        self.flushed = 0

    def empty(self, size, **_):
        self.flushed = size
        return types.SimpleNamespace(zero_=lambda: self.log.append("flush"))

    def event(self, **_):
        def query():
            self.late -= 1
            return self.late >= 0

        return types.SimpleNamespace(record=lambda: self.log.append("event"), query=query, elapsed_time=lambda _: 0.25)


def sample(late):
    torch = FakeTorch(late)
    graph = types.SimpleNamespace(replay=lambda: torch.log.append("graph"))
    return torch, worker.Timer(torch).cold(graph)


def test_a_sample_is_flush_hold_event_work_event():
    torch, seconds = sample(late=0)
    assert seconds == 0.25e-3
    assert torch.flushed == 125 << 20, "two and a half times the L2"
    assert torch.log == ["wait", "flush", ("hold", 1_000_000), "event", "graph", "event", "wait"]


def test_a_sample_that_was_not_held_back_is_none():
    torch, _ = sample(late=2)
    assert [entry[1] for entry in torch.log if entry[0] == "hold"] == [1_000_000, 2_000_000, 4_000_000]
    with pytest.raises(worker.Refusal):
        sample(late=100)
