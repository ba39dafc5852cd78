"""Damaged or foreign files in the results folder: every tool that reads records names each in one line and skips it."""

import copy
import io
import json
import shutil

import pytest

import made_records
from cli import json_file, paths, promote
from cli.errors import UsageError
from compare import main as compare_main
from dashboard import main as dashboard
from readme import ladder_table
from records import record_files
from search import log, serve

DEEP = "[" * 100_000 + "]" * 100_000
SPOILED = {  # kind: (a text, or a change to a complete record), the reason
    "lfs": ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a Git LFS pointer: fetch the file"),
    "damaged archive": (json_file.packed("[1, 2]" * 99)[:-9], "a damaged xz archive"),
    "packed list": (json_file.packed("[1, 2]"), "JSON of another kind"),
    "page": ("<!doctype html><html></html>", "a page of HTML or XML"),
    "empty": ("", "empty"),
    "torn": ('{"schema": "ladder.record/2", ', "no JSON at line 1, column"),
    "deep": (DEEP, "nested too deeply"),
    "deep record": (f'{{"schema": "ladder.record/2", "created": {DEEP}}}', "nested too deeply"),
    "benchmark": ('{"context": {}, "benchmarks": []}', "JSON of another kind"),
    "list": ("[1, 2]", "JSON of another kind"),
    "nan": ('{"schema": NaN}', "NaN is no number of JSON"),
    "no number": (lambda made: made["results"][0].update(seconds_spent=10**400), "broken record"),
    "copies": (
        lambda made: made["calibration"].update(copy_bytes_per_s="4 TB/s"),
        "copy_bytes_per_s is '4 TB/s', no number",
    ),
    "clock": (
        lambda made: made["environment"]["device"].update(max_sm_clock_hz=[1, 2]),
        "max_sm_clock_hz is [1, 2], no number",
    ),
    "flags": (lambda made: made["environment"].update(flags={"a": 1}), "flags is {'a': 1}, no text"),
    "device": (lambda made: made["environment"].update(device=5), "broken record"),
}


def records():
    made = [made_records.result(1, 90e-6, warm) for warm in ("n32 c64 bf16", "n1 c64 bf16")]
    return [made_records.record(made, f"2026-01-0{day}T00:00:00Z", f"{day}" * 40) for day in (1, 2)]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    source = tmp_path / "dev" / "toy" / "fprop" / "v01_idea_1.cu"
    source.parent.mkdir(parents=True)
    source.write_text("LADDER_VERSION(toy::Fprop, {.launch = launch})\n")
    (tmp_path / "dev" / "toy" / "shapes.txt").write_text("[unet]\ntop: n32 c64\n[perf]\nlow: n1 c64\n")
    (tmp_path / "dev" / "toy" / "README.md").write_text(
        "<!-- ladder:begin toy/fprop summary -->\n<!-- ladder:end -->\n"
    )
    for at, made in enumerate(records()):
        made_records.write(tmp_path / "results" / "h200" / f"{at}.json", made)
    return tmp_path


def spoil(file, spoiled):
    if callable(spoiled):
        made = copy.deepcopy(records()[0])
        spoiled(made)
        spoiled = json.dumps(made)
    file.write_bytes(spoiled.encode() if isinstance(spoiled, str) else spoiled)


@pytest.mark.parametrize("kind", SPOILED)
def test_a_file_that_is_no_record_hides_no_other(tree, capsys, kind):
    def outputs(*names):
        """Returns (each tool's stdout, the messages on stderr)."""
        found = []
        for main, arguments in (
            (compare_main.main, ["--all"]),
            (promote.main, ["--root", str(tree)]),
            (ladder_table.main, ["--root", str(tree)]),
            (dashboard.main, ["--root", str(tree), "--out", str(tree / "page.html")]),
        ):
            assert main(arguments) == 0
            found.append(capsys.readouterr())
        return found

    outputs()
    whole = outputs()
    spoiled, says = SPOILED[kind]
    spoil(tree / "results" / "h200" / "bad.json", spoiled)
    for before, after in zip(whole, outputs()):
        assert after.out == before.out
        (line,) = [line for line in after.err.splitlines() if "bad.json" in line]
        assert says in line and len(line) < 400
    (tree / "results" / "h200" / "bad.json").rename(tree / "results" / "h200" / "._bad.json")
    assert [each.err.count("bad.json") for each in outputs()] == [0] * 4


def test_a_copy_of_a_record_is_named_and_is_no_measurement(tree, capsys):
    folder = tree / "results" / "h200"
    slower = [made_records.result(1, seconds) for seconds in (90e-6, 180e-6)]
    for name, result, day in (("0.json", slower[0], 1), ("1.json", slower[1], 2)):
        result = made_records.result(1, made_records.times([result["times"]["cold_seconds"]["median"]] * 30))
        made_records.write(folder / name, made_records.record([result], f"2026-01-0{day}T00:00:00Z", f"{day}" * 40))

    def verdicts(*words):
        compare_main.main(["--json", "-", *words])
        return [each["ratio"] for each in json.loads(capsys.readouterr().out)["comparisons"]]

    assert verdicts() == verdicts("previous", "last") == [2.0]
    (tree / "results" / "copy").mkdir()
    for name in ("h200/1 (1).json", "h200/0.json.json", "copy/1.json"):
        shutil.copy(folder / f"{name.rpartition('/')[2][0]}.json", tree / "results" / name)
    assert verdicts() == verdicts("previous", "last") == [2.0]
    _, bad = record_files.load_all(tree / "results")
    assert sorted(str(error).partition(": ")[2] for error in bad) == [
        "a copy of h200/0.json",
        "a copy of h200/1.json",
        "a copy of h200/1.json",
    ]
    with pytest.raises(UsageError, match="is a copy of"):
        compare_main.main([str(folder / "1.json"), str(folder / "1 (1).json")])


def test_a_damaged_line_of_a_search_hides_no_other(tmp_path):
    node = {"node": 1, "parent": None, "round": 0, "verdict": "PASS"}
    nodes, damaged = log._parse("\n".join([DEEP, json.dumps(node), '{"node": NaN}']).encode(), "toy.jsonl")
    assert [node["node"] for node in nodes] == [1]
    assert damaged == [
        "toy.jsonl:1: not a node: nested too deeply",
        "toy.jsonl:3: not a node: NaN is no number of JSON",
    ]


def test_an_answer_of_serve_is_json():
    lines = ['{"id": NaN}', '{"id": 1e400}', DEEP, '{"id": 4, "target": "silu/forward", "source": ""}']
    out = io.StringIO()
    serve.serve(lambda request: {"error": float("inf"), "ratio": [float("nan"), 1.5]}, 1, lines, out)

    def refuse(word):
        raise AssertionError(word)

    answers = [json.loads(line, parse_constant=refuse) for line in out.getvalue().splitlines()]
    assert [answer["id"] for answer in answers] == [None, None, None, 4]
    assert all(answer["error"].startswith("not JSON: ") for answer in answers[:3])
    assert answers[3] == {"id": 4, "error": None, "ratio": [None, 1.5]}


def test_a_reason_is_one_line_of_bounded_length():
    with pytest.raises(json_file.NotJson) as raised:
        json_file.parse(b'\xef\xbb\xbf{"a": \xff}')
    assert str(raised.value) == "no UTF-8 at byte 6"
    assert json_file.parse(b"\xef\xbb\xbf[1]") == [1]
    assert len(json_file.reason(ValueError("a\nb" * 1000))) < 210
