"""tools/registry/listing.py and tools/registry/selection.py: what there is in a tree, and what --version, --problem, --dtype mean there."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from cli.errors import UsageError  # noqa: E402
from registry import listing, selection  # noqa: E402

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


class Toy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
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

    def refused(self, says, function, *arguments):
        with self.assertRaises(UsageError) as caught:
            function(*arguments)
        self.assertEqual(len(str(caught.exception).splitlines()), 1)
        self.assertIn(says, str(caught.exception))


class Listing(Toy):
    def test_layers_passes_and_versions(self):
        self.assertEqual([layer.name for layer in self.there.layers], ["toy"])
        self.assertEqual([a_pass.path for a_pass in self.there.passes], ["toy/grad", "toy/apply"])  # as in the header
        self.assertEqual(self.there.layer("toy").default, "apply")
        version = self.there.find("toy/apply").version(7)
        self.assertEqual(
            (version.label, version.dtypes, version.arch), ("v07_wmma_double_buffer", ("fp32", "bf16"), "sm_90a")
        )
        self.assertEqual(version.header, {"idea": "two in two lines.", "parent": 1, "needs": "nothing."})
        bare = self.there.find("toy/apply").version(10)
        self.assertEqual((bare.dtypes, bare.arch, bare.header), ((), "", {}))

    def test_what_is_no_version_is_not_listed(self):
        for name in (
            "apply/v11.cu",
            "apply/v1_short.cu",
            "apply/v12_Upper.cu",
            "apply/v13_notes.txt",
            "apply/old_v14_x.cu",
        ):
            (self.layer / name).write_text("")
        before = self.there
        self.read()
        self.assertEqual(self.there, before)

    def test_the_default_pass(self):
        (self.layer / "toy.h").write_text(HEADER.replace("  static constexpr bool kDefault = true;\n", ""))
        self.read()
        self.assertEqual(self.there.layer("toy").default, "")
        self.refused("toy has no default pass: name one of toy/grad, toy/apply", selection.one_pass, self.there, "toy")
        (self.layer / "grad" / "v01_naive.cu").unlink()
        self.read()
        self.assertEqual(self.there.layer("toy").default, "apply")  # the only one

    def test_json_has_all_of_it(self):
        (layer,) = json.loads(json.dumps(self.there.json()))["layers"]
        self.assertEqual((layer["name"], layer["default_pass"]), ("toy", "apply"))
        self.assertEqual(layer["sets"]["ci"], {"square": "n1 h8 c16", "same": "n1 h1 c1"})
        self.assertEqual([a_pass["path"] for a_pass in layer["passes"]], ["toy/grad", "toy/apply"])
        self.assertEqual(
            layer["passes"][1]["versions"][1],
            {
                "number": 6,
                "idea": "wmma",
                "label": "v06_wmma",
                "file": "dev/toy/apply/v06_wmma.cu",
                "dtypes": ["fp32", "bf16"],
                "arch": "sm_90a",
                "header": {"idea": "tiles in two lines.", "parent": 1, "needs": "nothing."},
            },
        )

    def test_the_real_tree(self):
        there = listing.read(ROOT)
        for layer in there.layers:
            with self.subTest(layer=layer.name):
                self.assertTrue(layer.default)
                self.assertTrue({"ci", "unet"} <= set(layer.sets))
        for a_pass in there.passes:
            self.assertEqual(len(set(a_pass.numbers)), len(a_pass.numbers), a_pass.path)
            for version in a_pass.versions:
                self.assertTrue(version.dtypes and version.header.get("idea"), version.file)
                self.assertIn(".dtypes", version.file.read_text(encoding="utf-8"))


class Targets(Toy):
    def test_a_layer_is_all_of_its_passes_or_its_default(self):
        paths = lambda *words: [a_pass.path for a_pass in selection.passes(self.there, words)]  # noqa: E731
        self.assertEqual(paths(), ["toy/grad", "toy/apply"])
        self.assertEqual(paths("toy"), ["toy/grad", "toy/apply"])
        self.assertEqual(paths("toy/apply"), ["toy/apply"])
        self.assertEqual(selection.one_pass(self.there, "toy").path, "toy/apply")
        self.assertEqual(selection.one_pass(self.there, "toy", "grad").path, "toy/grad")
        self.assertEqual(selection.one_pass(self.there, "toy/grad/").path, "toy/grad")

    def test_refusals_say_what_there_is(self):
        self.refused("no layer 'tyo'; there are: toy; did you mean 'toy'?", selection.passes, self.there, ["tyo"])
        self.refused(
            "no pass 'toy/aply'; there are: toy/grad, toy/apply; did you mean",
            selection.passes,
            self.there,
            ["toy/aply"],
        )
        self.refused(
            "toy has no pass 'aply'; it has: grad, apply; did you mean 'apply'?",
            selection.one_pass,
            self.there,
            "toy/aply",
        )
        self.refused("toy/grad and --pass apply contradict", selection.one_pass, self.there, "toy/grad", "apply")


class Versions(Toy):
    def numbers(self, text):
        return [version.number for version in selection.versions(self.there.find("toy/apply"), text)]

    def test_every_form(self):
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
            self.assertEqual(self.numbers(text), numbers, text)

    def test_refusals(self):
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
                self.assertEqual(self.numbers(text), [7])
            else:
                self.refused(says, self.numbers, text)

    def test_each_pass_numbers_its_own(self):
        found = selection.versions_of(self.there.passes, "6-7")
        self.assertEqual(
            {path: [version.number for version in these] for path, these in found.items()}, {"toy/apply": [6, 7]}
        )
        self.refused("no version '70'", selection.versions_of, self.there.passes, "70")
        self.refused("no version '7': toy/grad has v01", selection.versions_of, self.there.passes, "1,7")

    def test_which_forms_name_every_version(self):
        for text, each in (
            ("7", True),
            ("v07,1", True),
            ("v07_wmma", True),
            ("5-9", False),
            ("wmma", False),
            ("all", False),
        ):
            self.assertEqual(selection.names_each(text), each, text)

    def test_what_a_bench_program_is_told(self):
        layer, a_pass = self.there.layer("toy"), self.there.find("toy/apply")
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
            self.assertEqual(selection.program_words(layer, a_pass, text, **more), words, (text, more))
        self.refused("no version '70'", selection.program_words, layer, a_pass, "70")

    def test_as_a_filter_of_googletest(self):
        found = selection.versions_of(self.there.passes, "wmma")
        self.assertEqual(selection.gtest_filter(found), "toy_apply_v06_wmma.*:toy_apply_v07_wmma_double_buffer.*")


class Problems(Toy):
    def problem(self, text):
        return selection.problem(self.there.layer("toy"), text)

    def test_a_line_a_name_and_a_name_with_its_set(self):
        for text, line in (
            ("n1  h2 c3", "n1 h2 c3"),
            ("res64", "n32 h64 c64 relu"),
            ("same", "n1 h1 c1"),
            ("unet/same", "n1 h1 c1"),
            ("edge/twice", "n3 h3 c3 bf16"),
        ):
            self.assertEqual(self.problem(text), line)

    def test_refusals(self):
        self.refused("'res46': toy has no problem of that name; did you mean 'res64'?", self.problem, "res46")
        self.refused("is several: unet/twice, edge/twice", self.problem, "twice")
        self.refused("'ci/res64'", self.problem, "ci/res64")
        self.refused("'n1 h2': toy needs c, as in 'n1 h8 c16'", self.problem, "n1 h2")
        self.refused("--problem ''", self.problem, "")


class Words(Toy):
    def test_dtypes(self):
        self.assertEqual(selection.dtypes("fp16,bf16,fp16"), ["fp16", "bf16"])
        for wrong in ("", "bf16,", "int8"):
            self.refused(f"--dtype '{wrong}'", selection.dtypes, wrong)
        self.refused("did you mean 'bf16'?", selection.dtypes, "bf61")

    def test_seeds(self):
        self.assertEqual((selection.seed("0"), selection.seed("18446744073709551615")), (0, 2**64 - 1))
        for wrong in ("-1", "18446744073709551616", "", "1.5", "1e3", " 1"):
            self.refused(f"--seed '{wrong}'", selection.seed, wrong)

    def test_sets(self):
        self.assertEqual(selection.set_name(self.there.layers, "ci"), "ci")
        self.refused(
            "--set 'unte': toy has ci, unet, edge; did you mean 'unet'?", selection.set_name, self.there.layers, "unte"
        )


if __name__ == "__main__":
    unittest.main()
