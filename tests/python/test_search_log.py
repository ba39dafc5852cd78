"""tools/search/log.py: what a search keeps of its candidates, and what can be rebuilt from it."""

import json
import multiprocessing
import subprocess

import pytest

from cli.errors import Failure
from search import log

V08 = "// Idea: tiles.\nconstexpr int kTile = 64;\nvoid launch() {}\n"
WHERE = ("toy", "fprop")


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "dev" / "toy" / "fprop"
    folder.mkdir(parents=True)
    (folder / "v08_tiles.cu").write_text(V08)
    return tmp_path


def candidate(source, parent="v08", **fields):
    return {"source": source, "parent": parent, "idea": "another tile", "verdict": "PASS", "us": 10.5, **fields}


def append(root, *arguments, **fields):
    return log.append(*WHERE, candidate(*arguments, **fields), root=root)


def nodes(root):
    return log.read(*WHERE, root=root)[0]


def test_nodes_know_their_place(root):
    first, second = append(root, V08 + "//1\n"), append(root, V08 + "//2\n")
    child = append(root, V08 + "//1\n//3\n", first, error=float("inf"))
    alone = append(root, "int x;\n", None, verdict="FAIL", reason="does not compile")
    assert [first, second, child, alone] == [1, 2, 3, 4]
    found = nodes(root)
    assert [(node["parent"], node["round"], node["branch"]) for node in found] == [
        ("v08", 0, 1),
        ("v08", 0, 2),
        (1, 1, 1),
        (None, 0, 1),
    ]
    assert found[2]["error"] is None  # JSON has no infinity
    assert found[0]["cold_us"] is None and found[0]["at"].endswith("Z") and "published" not in found[0]
    assert "+//3\n" in found[2]["diff"] and "kTile" not in "".join(
        line for line in found[2]["diff"].splitlines(True) if line[0] in "+-"
    )


@pytest.mark.parametrize(
    "text",
    [
        V08.replace("64", "128"),
        V08.rstrip("\n"),
        V08.replace("\n", "\r\n"),
        V08 + "// \u00e4 \u2028 one line \x0c still\n\n\n",
        V08,
        "",
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n",
    ],
)
@pytest.mark.parametrize("parent", ["v08", None])
def test_sources_come_back_byte_for_byte(root, text, parent):
    first = append(root, text, parent)
    second = append(root, text + "\n// more", first)
    third = append(root, "else\n", second)
    assert log.source_of(*WHERE, first, root=root) == text
    assert log.source_of(*WHERE, second, root=root) == text + "\n// more"
    assert log.source_of(*WHERE, third, root=root) == "else\n"


def test_a_version_that_changed_comes_from_git(root):
    def git(*words):
        subprocess.run(["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    node = append(root, V08 + "// mine\n")
    file = root / "dev" / "toy" / "fprop" / "v08_tiles.cu"
    file.rename(file.with_name("v08_other_name.cu"))
    file.with_name("v08_other_name.cu").write_text("void launch();\n")
    assert log.source_of(*WHERE, node, root=root) == V08 + "// mine\n"
    (root / ".git").rename(root / "gone")
    with pytest.raises(Failure, match="^node 1 cannot be rebuilt: neither dev/toy/fprop/v08 nor that of commit"):
        log.source_of(*WHERE, node, root=root)


def test_a_changed_diff_is_noticed(root):
    append(root, V08 + "// mine\n")
    file = log.path(*WHERE, root=root)
    file.write_text(file.read_text().replace("// mine", "// ours"))
    with pytest.raises(Failure, match="node 1 cannot be rebuilt: its diff does not lead to the source"):
        log.source_of(*WHERE, 1, root=root)


def test_a_published_node_has_no_source_but_its_children_have(root):
    record = {"parent": None, "idea": "first", "verdict": "PASS", "published": {"ms": 7.02, "share": 0.201}}
    published = log.append(*WHERE, record, root=root)
    child = append(root, V08, published)
    assert nodes(root)[0]["published"] == {"ms": 7.02, "share": 0.201}
    assert log.source_of(*WHERE, child, root=root) == V08
    with pytest.raises(Failure, match="node 1 cannot be rebuilt: the log has no source"):
        log.source_of(*WHERE, published, root=root)


@pytest.mark.parametrize(
    "wrong", [{"parent": 7}, {"parent": "v09"}, {"verdict": "FINE"}, {"verdict": None}, {"node": 3}, {"speed": 1}]
)
def test_what_is_refused_leaves_no_trace(root, wrong):
    append(root, V08)
    before = log.path(*WHERE, root=root).read_bytes()
    with pytest.raises(Failure):
        log.append(*WHERE, {**candidate("x\n"), **wrong}, root=root)
    assert log.path(*WHERE, root=root).read_bytes() == before


def test_a_torn_line_is_named_and_never_glued(root):
    append(root, V08 + "//1\n")
    file = log.path(*WHERE, root=root)
    whole = file.read_bytes()
    file.write_bytes(whole + whole.replace(b'"node": 1', b'"node": 2')[:-40])
    found, damaged = log.read(*WHERE, root=root)
    assert [node["node"] for node in found] == [1]
    assert len(damaged) == 1 and damaged[0].startswith("toy-fprop.jsonl:2: not a node:")
    assert append(root, V08 + "//3\n") == 3  # the torn line may have been 2
    found, damaged = log.read(*WHERE, root=root)
    assert [node["node"] for node in found] == [1, 3] and len(damaged) == 1
    assert log.source_of(*WHERE, 3, root=root) == V08 + "//3\n"


def test_a_whole_line_without_its_end_is_kept(root):
    append(root, V08)
    file = log.path(*WHERE, root=root)
    file.write_bytes(file.read_bytes()[:-1])
    assert append(root, V08 + "//2\n") == 2
    found, damaged = log.read(*WHERE, root=root)
    assert [node["node"] for node in found] == [1, 2] and damaged == []


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"[1]",
        b"\xff",
        b"{}",
        b'{"node": 1, "parent": null, "round": 0, "verdict": "PASS"}',
        b'{"node": 5, "parent": [1], "round": 0, "verdict": "PASS"}',
        b'{"node": 5, "parent": null, "round": 0, "verdict": "PASS", "published": 3}',
        b'{"node": 5, "parent": 5, "round": 0, "verdict": "PASS"}',
        b'{"node": [], "parent": null, "round": 0, "verdict": "PASS"}',
        b'{"node": 5, "parent": null, "round": null, "verdict": "PASS"}',
        b'{"node": 5, "parent": null, "round": 0, "verdict": []}',
    ],
)
def test_damaged_lines_are_named(root, line):
    append(root, V08)
    file = log.path(*WHERE, root=root)
    file.write_bytes(file.read_bytes() + line + b"\n\n")
    found, damaged = log.read(*WHERE, root=root)
    assert [node["node"] for node in found] == [1] and len(damaged) == 1


def test_half_a_character_and_bytes_that_are_no_text(root):
    file = root / "dev" / "toy" / "fprop" / "v08_tiles.cu"
    file.write_bytes(b"// \xff\n")
    node = append(root, "// \ud800\n")
    assert log.source_of(*WHERE, node, root=root) == "// ?\n"


def test_no_log_is_an_empty_one(root):
    assert log.read(*WHERE, root=root) == ([], [])
    with pytest.raises(Failure, match="no node 1; it has 0 nodes"):
        log.source_of(*WHERE, 1, root=root)


def _many(root, worker, count):
    for at in range(count):
        append(root, V08 + f"// {worker} {at}\n", reason="long " * 2000)


def test_processes_append_at_once(root):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_many, args=(root, worker, 12)) for worker in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 6
    found, damaged = log.read(*WHERE, root=root)
    assert damaged == [] and [node["node"] for node in found] == list(range(1, 73))
    assert sorted(node["branch"] for node in found) == list(range(1, 73))
    lines = log.path(*WHERE, root=root).read_text().splitlines()
    assert [json.loads(line)["node"] for line in lines] == list(range(1, 73))
    assert "// 5 11" in "".join(node["diff"] for node in found)
