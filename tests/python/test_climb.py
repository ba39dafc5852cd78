"""tools/examples/climb.py against a server that keeps the log and times a candidate by its constants."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from search import log

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "examples"))
import climb

SOURCE = "constexpr int kTile = 16;\nconstexpr int kStages = 2;\nint x[kTile];\nconstexpr float kScale = 3;\n"
SERVER = """\
import json, re, sys
sys.path.insert(0, {tools!r})
from pathlib import Path
from search import log
for line in sys.stdin:
    request = json.loads(line)
    tile, stages = map(int, re.findall(r"constexpr int k\\w+ = (\\d+);", request["source"]))
    passed = tile * stages <= 512
    time = abs(tile - 64) + abs(stages - 4) + 1.0
    record = {{"verdict": "PASS" if passed else "FAIL", "us": 1.0, "cold_us": time if passed else None, "reason": "shared memory"}}
    kept = {{**record, "source": request["source"], "parent": request["parent"], "idea": request["idea"]}}
    node = log.append(*request["target"].split("/"), kept, root=Path({root!r}))
    print(json.dumps({{"id": request["id"], "node": node, **record}}), flush=True)
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(climb, "ROOT", tmp_path)
    folder = tmp_path / "dev" / "toy" / "fprop"
    folder.mkdir(parents=True)
    (folder / "v08_tiles.cu").write_text(SOURCE)
    tools = str(Path(climb.__file__).resolve().parents[1])
    (tmp_path / "server.py").write_text(SERVER.format(tools=tools, root=str(tmp_path)))
    return tmp_path


def run(monkeypatch, *arguments, server=None):
    words = ["climb.py", "toy/fprop", "--from", "8", *arguments]
    monkeypatch.setattr(sys, "argv", words + (["--server", server] if server else []))
    return climb.main()


def test_it_climbs_to_the_top_and_its_log_is_a_tree(tree, monkeypatch, capsys):
    server = f"{sys.executable} {tree / 'server.py'}"
    assert run(monkeypatch, "--rounds", "8", "--width", "6", server=server) == 0
    said = capsys.readouterr().out.splitlines()
    nodes, damaged = log.read("toy", "fprop", tree)
    fastest = min((node for node in nodes if node["verdict"] == "PASS"), key=lambda node: node["cold_us"])
    assert fastest["cold_us"] == 1 and damaged == []
    assert said[0] == "v08: 51.00 us"
    assert (
        said[-1] == f"fastest: node {fastest['node']}, 1.00 us; ./ladder promote-candidate toy/fprop {fastest['node']}"
    )
    best = log.source_of("toy", "fprop", fastest["node"], tree)
    assert best == SOURCE.replace("= 16", "= 64").replace("= 2;", "= 4;")
    assert nodes[0]["parent"] == "v08" and max(node["round"] for node in nodes) >= 2


def test_the_seed_decides_and_nothing_is_tried_twice():
    def all_of(seed):
        return list(climb.mutants(SOURCE, 6, random.Random(seed), {SOURCE}))

    assert all_of(1) == all_of(1) != all_of(2)
    assert len({text for text, _ in all_of(1)} | {SOURCE}) == 7
    text, idea = all_of(1)[0]
    assert "->" in idea and "kScale = 3" in text and text != SOURCE
    assert list(climb.mutants("int x;\n", 6, random.Random(1), set())) == []


def test_a_server_that_refuses_or_ends(tree, monkeypatch):
    for program, says in (
        ('input(); print(\'{"error": "no pass"}\')', "climb: no pass"),
        ("pass", "climb: the server ended: it said nothing"),
        ("input(); print('hello')", "climb: the server does not answer in JSON: hello"),
    ):
        (tree / "other.py").write_text(program)
        with pytest.raises(SystemExit, match=f"^{says}$"):
            run(monkeypatch, server=f"{sys.executable} {tree / 'other.py'}")


def test_the_line_of_a_server_that_ended_reaches_the_person(tree, monkeypatch, capsys):
    (tree / "other.py").write_text(
        "import sys\nprint('GPU build', file=sys.stderr)\nsys.exit(f'no sandbox, given {sys.argv[1:]}')\n"
    )
    server = f"{sys.executable} {tree / 'other.py'}"
    for flags, words in (([], "[]"), (["--unsandboxed"], "['--unsandboxed']")):
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, *flags, server=server)
        assert ended.value.code == f"climb: the server ended: no sandbox, given {words}"
        assert capsys.readouterr().err == f"GPU build\nno sandbox, given {words}\n"


def test_without_bubblewrap_ladder_try_says_what_to_do(tree, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(climb.__file__).resolve().parents[1]))
    monkeypatch.setenv("PATH", str(tree))  # has no bwrap
    with pytest.raises(
        SystemExit, match="the server ended: ladder: no sandbox: no bwrap .*bubblewrap.*; --unsandboxed"
    ):
        run(monkeypatch, server=f"{sys.executable} -m cli try --serve")


def test_a_version_without_a_time_is_no_start(tree, monkeypatch, capsys):
    (tree / "dev" / "toy" / "fprop" / "v08_tiles.cu").write_text(SOURCE.replace("16", "1024"))
    assert run(monkeypatch, server=f"{sys.executable} {tree / 'server.py'}") == 1
    assert capsys.readouterr().out == "v08: FAIL shared memory\n"


def test_without_a_gpu_it_says_so_in_a_line(tree):
    done = subprocess.run(
        [sys.executable, climb.__file__, "conv3x3/fprop", "--from", "8"],
        capture_output=True,
        text=True,
        env={"PATH": str(tree)},
    )
    assert (done.returncode, done.stderr) == (1, "climb: no GPU here (no nvidia-smi): a climb needs times\n")
    done = subprocess.run(
        [sys.executable, climb.__file__, "conv3x3/fprop", "--from", "98"], capture_output=True, text=True
    )
    assert done.stderr == "climb: conv3x3/fprop has no version 98\n"
