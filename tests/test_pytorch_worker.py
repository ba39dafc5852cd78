"""The PyTorch worker's protocol and the timer of its timer, without PyTorch."""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "reference" / "pytorch"
sys.path.insert(0, str(SCRIPTS))

import groupnorm  # noqa: E402
import worker  # noqa: E402


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


class Protocol(unittest.TestCase):
    def answers(self, *questions, make=Stub):
        said = io.StringIO()
        worker.serve(io.StringIO("".join(question + "\n" for question in questions)), said, make)
        return [json.loads(line) for line in said.getvalue().splitlines()]

    def test_every_question_has_one_line_for_an_answer(self):
        hello, *answers = self.answers('{"prepare": {"problem": "n1"}}', '{"sample": "eager"}', '{"answer": "eager"}')
        self.assertEqual(hello["library"], "Stub 1")
        self.assertEqual(answers, [{"plans": [], "heuristic": "n1", "makes": []}, {"seconds": 2e-6}, {}])

    def test_an_error_is_one_line_and_not_the_end(self):
        _, *answers = self.answers('{"sample": "ill"}', "rubbish", '{"hello": 1}', "[]", '{"sample": "eager"}')
        self.assertEqual(answers[0], {"error": "RuntimeError: CUDA error: an illegal memory access"})
        self.assertTrue(all("error" in answer for answer in answers[1:4]), answers)
        self.assertEqual(answers[4], {"seconds": 2e-6})

    def test_who_cannot_start_says_why(self):
        def make():
            raise worker.Refusal("python3 has no module torch")

        self.assertEqual(self.answers('{"sample": "eager"}', make=make), [{"error": "python3 has no module torch"}])

    def test_the_script_takes_its_folder_away_whatever_happens(self):
        # A module torch that talks and fails stands in for PyTorch, wherever this runs.
        with tempfile.TemporaryDirectory() as home:
            (Path(home) / "torch.py").write_text("print('noise')\nraise ImportError('broken', name='torch')\n")
            folder = Path(home) / "folder"
            folder.mkdir()
            done = subprocess.run(
                [sys.executable, SCRIPTS / "groupnorm.py", folder],
                input="",
                text=True,
                timeout=60,
                capture_output=True,
                env={"PYTHONPATH": home, "PYTHONDONTWRITEBYTECODE": "1"},
            )
            self.assertEqual(done.stdout, '{"error": "python3 has no module torch"}\n', done.stderr)
            self.assertIn("noise", done.stderr)
            self.assertFalse(folder.exists())

    def test_wrong_usage(self):
        for arguments in ([], ["folder", "--problem", "n1"]):
            done = subprocess.run(
                [sys.executable, "-B", SCRIPTS / "groupnorm.py", *arguments], timeout=60, capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn("either a folder", done.stderr)


class Problems(unittest.TestCase):
    def test_words_of_a_line(self):
        line = case("n32 h64 w48 c96 g16 gelu-tanh no-affine mean20000 bf16")
        self.assertEqual([line.number(letter) for letter in "nhwcg"], [32, 64, 48, 96, 16])

    def test_plans_of_a_search(self):
        names = [(plan.name, plan.search) for plan in groupnorm.plans(mock.Mock(), case("n1 g2"), {})]
        self.assertEqual(names[0], ("PyTorch eager nhwc", "heuristic"), "what a user gets who changes nothing")
        self.assertEqual([name for name, search in names if search == "heuristic"], ["PyTorch eager nhwc"])
        self.assertIn(("PyTorch compile nhwc", "listed"), names)
        self.assertEqual(len(set(names)), 6)

    def test_activations(self):
        functional = types.SimpleNamespace(
            relu="relu", silu="silu", mish="mish", gelu=lambda z, approximate: approximate
        )
        torch = types.SimpleNamespace(nn=types.SimpleNamespace(functional=functional))
        for word in ("relu", "silu", "mish"):
            self.assertEqual(groupnorm.activation_of(torch, case(f"n1 {word} bf16")), word)
        self.assertEqual(groupnorm.activation_of(torch, case("n1 gelu-tanh bf16"))(0), "tanh")
        self.assertEqual(groupnorm.activation_of(torch, case("n1 bf16"))(3), 3)


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


class Timer(unittest.TestCase):
    def sample(self, late):
        torch = FakeTorch(late)
        graph = types.SimpleNamespace(replay=lambda: torch.log.append("graph"))
        return torch, worker.Timer(torch).cold(graph)

    def test_a_sample_is_flush_hold_event_work_event(self):
        torch, seconds = self.sample(late=0)
        self.assertEqual(seconds, 0.25e-3)
        self.assertEqual(torch.flushed, 125 << 20, "two and a half times the L2")
        self.assertEqual(torch.log, ["wait", "flush", ("hold", 1_000_000), "event", "graph", "event", "wait"])

    def test_a_sample_that_was_not_held_back_is_none(self):
        torch, _ = self.sample(late=2)
        self.assertEqual([entry[1] for entry in torch.log if entry[0] == "hold"], [1_000_000, 2_000_000, 4_000_000])
        with self.assertRaises(worker.Refusal):
            self.sample(late=100)


if __name__ == "__main__":
    unittest.main()
