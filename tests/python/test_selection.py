"""tools/registry/listing.py and tools/registry/selection.py: what there is in a tree, and what --version, --problem, --dtype mean there."""

import json
from pathlib import Path

import pytest

from cli.errors import UsageError
from registry import listing, selection

ROOT = Path(__file__).resolve().parents[2]

HEADER = """\
struct Problem {
  int n = 1;
};

struct Grad {
  static constexpr const char* kName = "grad";
};

struct Apply {
  static constexpr const char* kName = "apply";
  static constexpr bool kDefault = true;
};
"""
VERSION = """\
// Idea:   {idea}
//         in two lines.
// Parent: v01.
// Needs:  nothing.

LADDER_VERSION(toy::Apply, {{.launch = toy::launch,
                            .dtypes = {{ladder::Dtype::bf16, ladder::Dtype::f32}},
                            .min_arch = 90,
                            .arch_specific = true}})
"""
SHAPES = """\
# comment
[ci]
square: n1 h8   c16
same:   n1 h1 c1     # the same in both
[unet]
same:   n1 h1 c1
res64:  n32 h64 c64 relu
twice:  n2 h2 c2
[edge]
twice:  n3 h3 c3 bf16
"""


class Toy:
    def __init__(self, root):
        self.root = root
        self.layer = self.root / "dev" / "toy"
        for name, text in (
            ("apply/v01_naive", "// Idea: as it is.\n"),
            ("apply/v06_wmma", VERSION.format(idea="tiles")),
            ("apply/v07_wmma_double_buffer", VERSION.format(idea="two")),
            ("apply/v10_mma", ""),
            ("grad/v01_naive", ""),
        ):
            file = self.layer / f"{name}.cu"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (self.layer / "toy.h").write_text(HEADER)
        (self.layer / "shapes.txt").write_text(SHAPES)
        (self.root / "dev" / "ptx").mkdir()
        (self.root / "dev" / "ptx" / "mma.h").write_text("")
        self.read()

    def read(self):
        self.there = listing.read(self.root)

    def numbers(self, text):
        return [version.number for version in selection.versions(self.there.find("toy/apply"), text)]

    def problem(self, text):
        return selection.problem(self.there.layer("toy"), text)

    def refused(self, says, function, *arguments):
        with pytest.raises(UsageError) as caught:
            function(*arguments)
        assert len(str(caught.value).splitlines()) == 1
        assert says in str(caught.value)


@pytest.fixture
def toy(tmp_path):
    return Toy(tmp_path)


def test_layers_passes_and_versions(toy):
    assert [layer.name for layer in toy.there.layers] == ["toy"]
    assert [a_pass.path for a_pass in toy.there.passes] == ["toy/grad", "toy/apply"]  # as in the header
    assert toy.there.layer("toy").default == "apply"
    version = toy.there.find("toy/apply").version(7)
    assert (version.label, version.dtypes, version.arch) == ("v07_wmma_double_buffer", ("fp32", "bf16"), "sm_90a")
    assert version.header == {"idea": "two in two lines.", "parent": 1, "needs": "nothing."}
    bare = toy.there.find("toy/apply").version(10)
    assert (bare.dtypes, bare.arch, bare.header) == ((), "", {})


def test_what_is_no_version_is_not_listed(toy):
    for name in (
        "apply/v11.cu",
        "apply/v1_short.cu",
        "apply/v12_Upper.cu",
        "apply/v13_notes.txt",
        "apply/old_v14_x.cu",
    ):
        (toy.layer / name).write_text("")
    before = toy.there
    toy.read()
    assert toy.there == before


def test_the_default_pass(toy):
    (toy.layer / "toy.h").write_text(HEADER.replace("  static constexpr bool kDefault = true;\n", ""))
    toy.read()
    assert toy.there.layer("toy").default == ""
    toy.refused("toy has no default pass: name one of toy/grad, toy/apply", selection.one_pass, toy.there, "toy")
    (toy.layer / "grad" / "v01_naive.cu").unlink()
    toy.read()
    assert toy.there.layer("toy").default == "apply"  # the only one


def test_json_has_all_of_it(toy):
    (layer,) = json.loads(json.dumps(toy.there.json()))["layers"]
    assert (layer["name"], layer["default_pass"]) == ("toy", "apply")
    assert layer["sets"]["ci"] == {"square": "n1 h8 c16", "same": "n1 h1 c1"}
    assert [a_pass["path"] for a_pass in layer["passes"]] == ["toy/grad", "toy/apply"]
    assert layer["passes"][1]["versions"][1] == {
        "number": 6,
        "idea": "wmma",
        "label": "v06_wmma",
        "file": "dev/toy/apply/v06_wmma.cu",
        "dtypes": ["fp32", "bf16"],
        "arch": "sm_90a",
        "header": {"idea": "tiles in two lines.", "parent": 1, "needs": "nothing."},
    }


def test_the_real_tree(toy):
    there = listing.read(ROOT)
    for layer in there.layers:
        assert layer.default, layer.name
        assert {"ci", "edge", "perf"} <= set(layer.sets), layer.name
    for a_pass in there.passes:
        assert len(set(a_pass.numbers)) == len(a_pass.numbers), a_pass.path
        for version in a_pass.versions:
            assert version.dtypes and version.header.get("idea"), version.file
            assert ".dtypes" in version.file.read_text(encoding="utf-8")


def test_a_layer_is_all_of_its_passes_or_its_default(toy):
    paths = lambda *words: [a_pass.path for a_pass in selection.passes(toy.there, words)]  # noqa: E731
    assert paths() == ["toy/grad", "toy/apply"]
    assert paths("toy") == ["toy/grad", "toy/apply"]
    assert paths("toy/apply") == ["toy/apply"]
    assert selection.one_pass(toy.there, "toy").path == "toy/apply"
    assert selection.one_pass(toy.there, "toy", "grad").path == "toy/grad"
    assert selection.one_pass(toy.there, "toy/grad/").path == "toy/grad"


def test_refusals_say_what_there_is(toy):
    toy.refused("no layer 'tyo'; there are: toy; did you mean 'toy'?", selection.passes, toy.there, ["tyo"])
    toy.refused(
        "no pass 'toy/aply'; there are: toy/grad, toy/apply; did you mean", selection.passes, toy.there, ["toy/aply"]
    )
    toy.refused(
        "toy has no pass 'aply'; it has: grad, apply; did you mean 'apply'?", selection.one_pass, toy.there, "toy/aply"
    )
    toy.refused("toy/grad and --pass apply contradict", selection.one_pass, toy.there, "toy/grad", "apply")


def test_every_form(toy):
    for text, numbers in (
        ("7", [7]),
        ("07", [7]),
        ("v07", [7]),
        ("V7", [7]),
        ("v07_wmma_double_buffer", [7]),
        ("5-9", [6, 7]),
        ("v06-v10", [6, 7, 10]),
        ("7,1", [1, 7]),
        ("1,6-7,v10", [1, 6, 7, 10]),
        ("wmma", [6, 7]),
        ("double_buffer", [7]),
        ("double-buffer", [7]),
        ("mma", [10]),
        ("all", [1, 6, 7, 10]),
        ("best", [1, 6, 7, 10]),
    ):
        assert toy.numbers(text) == numbers, text


def test_versions_that_are_refused(toy):
    for text, says in (
        ("70", "no version '70': toy/apply has v01_naive, v06_wmma"),
        ("v07_wmma", "no version 'v07_wmma'"),
        ("2-5", "no version '2-5'"),
        ("9-5", "the smaller number first"),
        ("1,", "'1,'"),
        ("", "''"),
        (",", "','"),
        ("wmmma", "did you mean 'wmma'?"),
        ("double", None),
        ("doubl", "no word of an idea"),
        ("all,7", "--version 'all,7'"),
        ("1.5", "--version '1.5'"),
        ("-1", "--version '-1'"),
    ):
        if says is None:
            assert toy.numbers(text) == [7]
        else:
            toy.refused(says, toy.numbers, text)


def test_each_pass_numbers_its_own(toy):
    found = selection.versions_of(toy.there.passes, "6-7")
    assert {path: [version.number for version in these] for path, these in found.items()} == {"toy/apply": [6, 7]}
    toy.refused("no version '70'", selection.versions_of, toy.there.passes, "70")
    toy.refused("no version '7': toy/grad has v01", selection.versions_of, toy.there.passes, "1,7")


def test_which_forms_name_every_version():
    for text, each in (
        ("7", True),
        ("v07,1", True),
        ("v07_wmma", True),
        ("5-9", False),
        ("wmma", False),
        ("all", False),
    ):
        assert selection.names_each(text) == each, text


def test_what_a_bench_program_is_told(toy):
    layer, a_pass = toy.there.layer("toy"), toy.there.find("toy/apply")
    for text, more, words in (
        ("7", {}, ["--version", "7"]),
        ("v07_wmma_double_buffer,1", {"a_set": "ci"}, ["--version", "1,7", "--set", "ci"]),
        ("wmma", {}, ["--version", "6,7"]),
        ("wmma", {"without": {6}}, ["--version", "7"]),
        ("5-9", {"dtypes": ["bf16"]}, ["--version", "6,7"]),
        ("7", {"dtypes": ["fp16"]}, ["--version", "7"]),  # named, so the program says that it has none
        ("1-7", {"dtypes": ["fp16"]}, ["--version", "1"]),
        ("6-7", {"dtypes": ["fp16"]}, ["--version", "6,7"]),
        ("1-7", {"lines": ["n1 h1 c1 fp16"]}, ["--version", "1", "--problem", "n1 h1 c1 fp16"]),
        ("1-7", {"a_set": "unet"}, ["--version", "1,6,7", "--set", "unet"]),
        ("all", {"a_set": "ci"}, ["--version", "all", "--set", "ci"]),
        ("best", {"lines": ["a 1", "b 2"]}, ["--promoted", "--problem", "a 1", "--problem", "b 2"]),
    ):
        assert selection.program_words(layer, a_pass, text, **more) == words, (text, more)
    toy.refused("no version '70'", selection.program_words, layer, a_pass, "70")


def test_as_a_filter_of_googletest(toy):
    found = selection.versions_of(toy.there.passes, "wmma")
    assert selection.gtest_filter(found) == "toy_apply_v06_wmma.*:toy_apply_v07_wmma_double_buffer.*"


def test_a_line_a_name_and_a_name_with_its_set(toy):
    for text, line in (
        ("n1  h2 c3", "n1 h2 c3"),
        ("res64", "n32 h64 c64 relu"),
        ("same", "n1 h1 c1"),
        ("unet/same", "n1 h1 c1"),
        ("edge/twice", "n3 h3 c3 bf16"),
    ):
        assert toy.problem(text) == line


def test_problems_that_are_refused(toy):
    toy.refused("'res46': toy has no problem of that name; did you mean 'res64'?", toy.problem, "res46")
    toy.refused("is several: unet/twice, edge/twice", toy.problem, "twice")
    toy.refused("'ci/res64'", toy.problem, "ci/res64")
    toy.refused("'n1 h2': toy needs c, as in 'n1 h8 c16'", toy.problem, "n1 h2")
    toy.refused("--problem ''", toy.problem, "")


def test_dtypes(toy):
    assert selection.dtypes("fp16,bf16,fp16") == ["fp16", "bf16"]
    assert selection.dtypes("all") == []
    for wrong in ("", "bf16,", "int8"):
        toy.refused(f"--dtype '{wrong}'", selection.dtypes, wrong)
    toy.refused("did you mean 'bf16'?", selection.dtypes, "bf61")


def test_seeds(toy):
    assert (selection.seed("0"), selection.seed("18446744073709551615")) == (0, 2**64 - 1)
    for wrong in ("-1", "18446744073709551616", "", "1.5", "1e3", " 1"):
        toy.refused(f"--seed '{wrong}'", selection.seed, wrong)


def test_sets(toy):
    assert selection.set_name(toy.there.layers, "ci") == "ci"
    toy.refused(
        "--set 'unte': toy has ci, unet, edge; did you mean 'unet'?", selection.set_name, toy.there.layers, "unte"
    )
