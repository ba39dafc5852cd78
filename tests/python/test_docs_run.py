"""`./ladder test docs`: which commands the documents have, which run, in what copy, and what is kept and written of them."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from cli import device, docs, docs_run, paths, verbs
from cli.errors import Failure, UsageError

ROOT = Path(__file__).resolve().parents[2]

_PAGE = """\
# A tree

    ./ladder one      writes a file
    ./ladder fails
    ./ladder profile

Prose:
    ./ladder prose
"""
_LADDER = """\
#!/bin/sh
echo "$1" >> build/ran.txt
echo said by "$1"
[ "$1" != one ] || echo made > made.txt
[ "$1" != fails ] || [ -e build/mended ]
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A committed tree of a page, a list and a program, without a GPU."""
    root = tmp_path / "tree"
    for name, text in {"README.md": _PAGE, "ladder": _LADDER, ".gitignore": "/build/\n/.ladder/\n"}.items():
        _write(root / name, text)
    (root / "ladder").chmod(0o755)
    _write(root / docs.LIST, "# WHAT | PATTERN\nGPU | ./ladder profile\n")
    _git(root, "init", "--quiet")
    _commit(root)
    monkeypatch.setattr(paths, "ROOT", root)
    monkeypatch.setattr(paths, "BUILD", root / "build")
    monkeypatch.setattr(device, "gpu", lambda: (None, "no GPU"))
    (root / "build" / "docs_run" / "build").mkdir(parents=True)  # which is the copy's and stays
    return root


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _git(root, *words):
    subprocess.run(["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)


def _commit(root):
    _git(root, "add", ".")
    _git(root, "commit", "--quiet", "-m", "a tree")


def _ran(tree):
    """The commands that have run since the last call."""
    file = tree / "build" / "docs_run" / "build" / "ran.txt"
    found = file.read_text(encoding="utf-8").split() if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def _commands(tmp_path, text):
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    return [(command.line, command.text) for command in docs.commands(tmp_path)]


def test_commands_are_lines_of_code_blocks_without_their_explanations(tmp_path):
    page = """\
    ./ladder bench 'a  b' "c  d"  what it does, the layer's
    dev/x.cu       a file
    build/bench_x --version 7

text
    ./ladder of a paragraph

```sh
git status
```

    ncu --set full \\
        build/bench_x     all of it
    for k in 1 2; do \\
      echo $k; \\
    done
    for (int i = 0; i < 2; ++i) {
"""
    assert _commands(tmp_path, page) == [
        (1, """./ladder bench 'a  b' "c  d\""""),
        (3, "build/bench_x --version 7"),
        (9, "git status"),
        (12, "ncu --set full build/bench_x"),
        (14, "for k in 1 2; do echo $k; done"),
    ]


def _rules(tmp_path, listed, *texts):
    _write(tmp_path / docs.LIST, listed)
    found = [docs.Command("a.md", number, text) for number, text in enumerate(texts, 1)]
    return list(docs.rules(tmp_path, found).values())


def test_the_first_line_that_matches_says_how_a_command_runs(tmp_path):
    listed = "# a comment\n\nGPU, 1800 s | ./ladder train\n20 s | ./ladder t*\nfor hours, on 2 GPUs | ./ladder record\n"
    first, second, third, other = _rules(
        tmp_path, listed, "./ladder train", "./ladder test", "./ladder record", "./ladder list"
    )
    assert (first.needs, first.seconds, first.reason) == (("GPU",), 1800, "")
    assert (second.needs, second.seconds, second.reason) == ((), 20, "")
    assert third.why_not() == "for hours, on 2 GPUs"
    assert (other, other.why_not()) == (docs.Rule(), "")


def test_what_the_machine_lacks_is_the_reason(tmp_path, monkeypatch):
    (rule,) = _rules(tmp_path, "GPU | ./ladder train", "./ladder train")
    monkeypatch.setattr(device, "gpu", lambda: (None, "no GPU"))
    assert rule.why_not() == "needs a GPU"
    monkeypatch.setattr(device, "gpu", lambda: ("NVIDIA H200", ""))
    assert rule.why_not() == ""


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("needs a network | ./ladder setup", ":1: './ladder setup' matches no command"),
        ("GPU | ./ladder *\n9 s | ./ladder train", ":2: './ladder train' matches no command that no line above"),
        ("./ladder train", "it is to be WHAT | PATTERN"),
    ],
)
def test_a_line_of_the_list_without_a_use_is_an_error(tmp_path, listed, said):
    with pytest.raises(Failure) as failure:
        _rules(tmp_path, listed, "./ladder train")
    assert said in str(failure.value)


def test_the_list_of_this_tree_fits_its_documents():
    rules = docs.rules(ROOT, docs.commands(ROOT))
    running = [command for command, rule in rules.items() if not rule.reason]
    assert docs.Command("README.md", 9, "./ladder bench conv3x3 --version 7") in running
    assert len(running) > len(rules) / 2


def test_commands_run_in_a_copy_and_the_tree_stays_as_it_is(tree, capfd):
    before = subprocess.run(["git", "-C", tree, "status", "--porcelain"], capture_output=True).stdout
    assert docs_run.main(["--json", str(tree / "build" / "all.json")]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["PASS", "FAIL", "said", "SKIP", "1"]
    assert "README.md:4" in lines[1] and lines[1].endswith("./ladder fails  (exit status 1)")
    assert lines[2:] == ["    said by fails", lines[3], "1 passed, 1 failed, 1 skipped"]
    assert subprocess.run(["git", "-C", tree, "status", "--porcelain"], capture_output=True).stdout == before
    assert not (tree / "made.txt").exists()
    written = json.loads((tree / "build" / "all.json").read_text(encoding="utf-8"))
    assert (written["schema"], written["device"], written["dirty"]) == ("ladder.docs/1", "emulator", False)
    assert [(each["line"], each["command"], each["status"], each["reason"]) for each in written["commands"]] == [
        (3, "./ladder one", "PASS", ""),
        (4, "./ladder fails", "FAIL", "exit status 1"),
        (5, "./ladder profile", "SKIP", "needs a GPU"),
    ]


def test_what_passed_runs_again_in_another_state_of_the_tree_alone(tree, capfd):
    copy = tree / "build" / "docs_run"
    assert docs_run.main([]) == 1
    assert _ran(tree) == ["one", "fails"]
    (copy / "build" / "mended").touch()
    assert docs_run.main([]) == 0
    assert _ran(tree) == ["fails"]
    assert docs_run.main([]) == 0
    assert _ran(tree) == []
    assert (copy / "made.txt").exists()
    assert docs_run.main(["--full", "--minutes", "1e-9"]) == 1
    assert capfd.readouterr().out.endswith("2 commands not run: the time was up\n0 passed, 0 failed, 3 skipped\n")
    assert not (copy / "made.txt").exists()
    _write(tree / "README.md", _PAGE.replace("one", "two"))
    assert docs_run.main([]) == 0
    assert _ran(tree) == ["two", "fails"]


def test_the_copy_is_what_git_does_not_ignore_with_its_history(tree):
    copy = tree / "build" / "docs_run"
    _write(tree / "dev" / "old" / "old.h", "old")
    _commit(tree)
    docs_run.synchronise(tree, copy)
    unchanged = (copy / "ladder").stat().st_mtime_ns
    assert os.access(copy / "ladder", os.X_OK)
    (tree / "dev" / "old" / "old.h").unlink()
    _write(tree / "README.md", "changed")
    _write(tree / "new.txt", "new")
    _write(tree / "build" / "ignored.txt", "ignored")
    _write(copy / "runs" / "log.txt", "of a command")
    docs_run.synchronise(tree, copy)
    assert (copy / "README.md").read_text(encoding="utf-8") == "changed"
    assert not any((copy / name).exists() for name in ("build/ignored.txt", "dev", "runs"))
    assert (copy / "ladder").stat().st_mtime_ns == unchanged
    log = subprocess.run(["git", "-C", copy, "log", "--format=%s"], capture_output=True, text=True)
    assert log.stdout.split("\n")[:2] == ["a tree", "a tree"]
    status = subprocess.run(["git", "-C", copy, "status", "--porcelain"], capture_output=True, text=True)
    assert status.stdout.split("\n")[:-1] == [" M README.md", " D dev/old/old.h", "?? new.txt"]


def test_each_document_has_its_turn_to_be_the_first():
    rules = {docs.Command(name, line, "./ladder list"): docs.Rule() for name in "abc" for line in (1, 2)}
    orders = {"".join(command.document for command in docs_run._turned(rules, f"{tree:x}")) for tree in range(20)}
    assert orders == {"aabbcc", "bbccaa", "ccaabb"}
    assert [command.line for command in docs_run._turned(rules, "1")] == [1, 2] * 3


def test_a_tree_without_git_is_copied_but_for_what_was_made(tmp_path):
    for name in ("ladder", "dev/x.cu", "build/x.o", "runs/a/log.jsonl", ".ladder/setup.log", "tools/__pycache__/x.pyc"):
        _write(tmp_path / name, name)
    assert docs_run.names(tmp_path) == ["dev/x.cu", "ladder"]


def test_a_command_that_does_not_end_is_ended_with_what_it_started(tmp_path):
    result, _ = docs_run.run("sleep 60 & echo $! > pid; wait", tmp_path, 1)
    assert (result.status, result.reason) == ("FAIL", "not over after 1 s")
    process = Path("/proc", (tmp_path / "pid").read_text(encoding="utf-8").strip(), "cmdline")
    for _ in range(100):
        if not process.exists() or not process.read_bytes():
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


def test_docs_stands_alone():
    with pytest.raises(UsageError, match="docs comes first"):
        verbs.test(["--full", "docs"])
