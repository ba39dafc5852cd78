"""results/machine_code.json, and which figures of tables and dashboard carry the sign of other code."""

import json

import pytest

import made_records
from cli.errors import Failure
from dashboard import model, page, sources
from dev import machine_code, resources
from readme import ladder_table
from records import current, record_files

PAGE = """\
<!-- ladder:begin toy/fprop summary -->
<!-- ladder:end -->
<!-- ladder:begin toy/fprop shapes -->
<!-- ladder:end -->
"""


def of_build(nvcc="13.0.88", arch="sm_90", **versions):
    return {arch: {"nvcc": nvcc, "versions": {f"toy/fprop/{name}": digest for name, digest in versions.items()}}}


class Tree:
    def __init__(self, root):
        self.root, self.results = root, root / "results"
        (root / "dev" / "toy").mkdir(parents=True)
        (root / "dev" / "toy" / "shapes.txt").write_text("[unet]\ntop: n32 c64\n")
        (root / "README.md").write_text(PAGE)
        self.results.mkdir()

    def record(self, name, *versions, digests=None, device="h200"):
        fields = {"machine_code": {f"toy/fprop/{key}": digest for key, digest in digests.items()}} if digests else {}
        made = made_records.record([made_records.result(version, 50e-6) for version in versions], **fields)
        made_records.write(self.results / device / name, made)

    def dated(self):
        """The newest results: each one's device and version, where it has the sign."""
        return [(result.record.device, result.version) for result in record_files.read(self.results) if result.is_dated]

    def page(self):
        texts, _ = ladder_table.render(self.root, record_files.read(self.results))
        return texts[self.root / "README.md"]


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_what_is_kept_is_added_to_until_nvcc_is_another(tree):
    assert current.keep(tree.results, of_build(v01="a", v02="b"))
    assert not current.keep(tree.results, of_build(v02="b"))
    assert current.keep(tree.results, of_build(v02="c"))
    assert current.keep(tree.results, of_build(arch="sm_80", v01="d"))
    assert current.read(tree.results) == {**of_build(v01="a", v02="c"), **of_build(arch="sm_80", v01="d")}
    current.keep(tree.results, of_build(nvcc="13.1.0", v02="c"))
    assert current.read(tree.results)["sm_90"] == of_build(nvcc="13.1.0", v02="c")["sm_90"]


def test_a_file_that_is_something_else_is_named(tree):
    for text in ("[]", "{", '{"sm_90": {"versions": {}}}'):
        (tree.results / current.NAME).write_text(text)
        with pytest.raises(Failure, match=r"machine_code\.json: not what ./ladder resources --keep writes"):
            record_files.read(tree.results)


def test_a_device_whose_records_have_no_digests_has_no_signs(tree):
    tree.record("a.json", 1, 2)
    current.keep(tree.results, of_build(v01="a", v02="b"))
    assert tree.dated() == []
    assert current.SIGN not in tree.page()


def test_other_code_and_unknown_code_have_the_sign(tree):
    tree.record("a.json", 1, 2, 3, 4)
    tree.record("b.json", 2, 3, 4, digests={"v02": "b", "v03": "c", "v04": "d"})
    tree.record("a.json", 1, device="h100")
    current.keep(tree.results, of_build(v01="a", v02="b", v03="changed"))
    assert tree.dated() == [("h200", 1), ("h200", 3), ("h200", 4)]


def test_the_tables_say_which(tree):
    tree.record("a.json", 1, 2, digests={"v01": "a", "v02": "b"})
    current.keep(tree.results, of_build(v01="a", v02="b"))
    assert current.SIGN not in tree.page()
    current.keep(tree.results, of_build(v02="changed"))
    text = tree.page()
    assert "| v02 idea 2 † |" in text and "v01 idea 1 †" not in text
    assert "| 50.0 | 50.0† |" in text
    assert text.count(current.LEGEND) == 2


def test_readme_and_dashboard_say_which_promoted_line(tree):
    tree.record("a.json", 1, digests={"v01": "a"})
    promoted = tree.root / "runtime" / "promoted" / "h200.txt"
    promoted.parent.mkdir(parents=True)
    line = "toy/fprop  n32 c64 bf16  v01_idea_1  45.0 us warm  50.0 cold  cuDNN  90.0 warm  abcdef0\n"
    promoted.write_text(line)
    (tree.root / "README.md").write_text("<!-- training:begin promoted -->\n<!-- training:end -->\n")

    def shown():
        data = model.build(tree.root, *sources.read(tree.root), lambda a, b: [])
        return tree.page(), page.render(data, ""), [entry["dated"] for entry in data["series"] + data["standing"]]

    current.keep(tree.results, of_build(v01="a"))
    text, html, dated = shown()
    assert "toy/fprop" in text and current.LEGEND not in text + html and dated == [False, False]
    current.keep(tree.results, of_build(v01="changed"))
    text, html, dated = shown()
    assert "README.md) † |" in text and current.LEGEND in text
    assert html.count(f">{current.SIGN}</abbr>") == 2 and dated == [True, True]


def test_resources_keeps_the_digests(tree, monkeypatch, capsys):
    kernel = {"file": "dev/toy/fprop/v01_a.cu", "kernel": "k", "arch": "sm_90a", "registers": 1, "static_smem_bytes": 0}
    kernel.update(stack_bytes=0, spill_store_bytes=0, spill_load_bytes=0)
    monkeypatch.setattr(resources, "ROOT", tree.root)
    monkeypatch.setattr(resources, "collect", lambda folder, passes: ([kernel], []))
    monkeypatch.setattr(machine_code, "of_build", lambda folder, passes: of_build(v01="a"))
    assert resources.main([]) == 0
    assert not (tree.results / current.NAME).exists()
    assert resources.main(["--keep"]) == 0
    assert json.loads((tree.results / current.NAME).read_text()) == of_build(v01="a")
    assert "next: ./ladder table" in capsys.readouterr().err
    assert resources.main(["--keep"]) == 0
    assert "next:" not in capsys.readouterr().err
