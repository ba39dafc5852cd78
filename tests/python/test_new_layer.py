"""`./ladder new --layer` and first versions: what they write, what they refuse, and that it builds and passes."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cli import new, new_layer, paths, tools
from cli.errors import UsageError
from registry import listing

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "emulator"
SOFTMIN = ("softmin/forward", "--layer", "--problem", "m n", "--tensors", "x[m,n] -> y[m,n]")
FILES = sorted(new_layer._files("softmin", "forward"))
BACKWARD = """\
struct Backward {
  static constexpr const char* kName = "backward";
  struct Tensors {
    const void* dy;  // [m, n] dtype
    void* dx;        // [m, n] dtype
  };
};

}  // namespace ladder::softmin
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for folder in ("dev", "reference", "bench"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "CMakeLists.txt", tmp_path)
    shutil.copy(ROOT / ".clang-format", tmp_path)
    for header in ROOT.glob("core/**/*.h"):
        copy = tmp_path / header.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(header, copy)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    return tmp_path


def written(tree):
    return sorted(
        str(path.relative_to(tree))
        for folder in ("dev", "reference", "bench")
        for path in (tree / folder).rglob("*")
        if path.is_file()
    )


def refused(tree, says, *arguments):
    before = written(tree)
    with pytest.raises(UsageError) as error:
        new.main(list(arguments))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert written(tree) == before


def test_it_writes_a_whole_layer(tree, capsys):
    assert new.main(list(SOFTMIN)) == 0
    assert written(tree) == FILES
    said = capsys.readouterr().err
    assert "y[m,n] = 2 x[m,n]" in said
    assert "./ladder bench softmin" in said
    (layer,) = listing.read(tree).layers
    assert (layer.name, layer.default, list(layer.sets)) == ("softmin", "forward", ["ci", "edge", "perf", "order"])
    assert [version.label for version in layer.passes[0].versions] == ["v01_naive"]
    assert layer.sets["edge"]["one_n"] == "m5 n1"


@pytest.mark.parametrize(
    ("says", "name"),
    [
        ("dev/silu exists", "silu/forward"),
        ("layer 'Softmin': snake_case", "Softmin/forward"),
        ("layer 'soft__min': snake_case", "soft__min/forward"),
        ("layer '..': snake_case", "../forward"),
        ("pass '': snake_case", "softmin"),
        ("pass 'Forward'", "softmin/Forward"),
        ("pass 'a/b'", "softmin/a/b"),
        ("pass 'problem'", "softmin/problem"),  # struct Problem
        ("pass 'dtype'", "softmin/dtype"),  # struct Dtype of core/
        ("a part of the tree", "core/forward"),
        ("a part of the tree", "check/forward"),  # ladder_check
        ("a part of the tree", "plan/forward"),  # a function of core/
    ],
)
def test_names_that_cannot_be(tree, says, name):
    (tree / "dev" / "silu").mkdir()
    refused(tree, says, name, *SOFTMIN[1:])


@pytest.mark.parametrize(
    ("says", "problem", "tensors"),
    [
        ("letters with blanks between", "m, n", "x[m] -> y[m]"),
        ("letters with blanks between", "rows", "x[m] -> y[m]"),
        ("1 to 6 letters, each once", "m m", "x[m] -> y[m]"),
        ("1 to 6 letters, each once", "a b c d e f g", "x[a] -> y[a]"),
        ("inputs, '->', outputs", "m", "x[m]"),
        ("inputs, '->', outputs", "m", "x[m] ->"),
        ("inputs, '->', outputs", "m", "-> y[m]"),
        ("inputs, '->', outputs", "m", "x[m] -> y[m] -> z[m]"),
        ("'=' is no tensor", "m", "x[m] = y[m]"),
        ("'x[m' is no tensor", "m", "x[m -> y[m]"),
        ("x[m,m]: letters", "m", "x[m,m] -> y[m]"),
        ("x[]: letters", "m", "x[] -> y[m]"),
        ("'n' is none of the problem's sizes m", "m", "x[n] -> y[m]"),
        ("'x' stands for two things", "m", "x[m] -> x[m]"),
        ("'m' stands for two things", "m", "m[m] -> y[m]"),
        ("called 'X'", "m", "X[m] -> y[m]"),
        ("called 'new'", "m", "new[m] -> y[m]"),
    ],
)
def test_tensors_that_cannot_be(tree, says, problem, tensors):
    refused(tree, says, "softmin/forward", "--layer", "--problem", problem, "--tensors", tensors)


@pytest.mark.parametrize("left_out", ["--problem", "--tensors"])
def test_a_layer_needs_both(tree, left_out):
    at = SOFTMIN.index(left_out)
    refused(tree, "--problem 'm n' --tensors", *SOFTMIN[:at], *SOFTMIN[at + 2 :])
    refused(tree, "--from N", "softmin/forward", "naive", *SOFTMIN[at : at + 2])


@pytest.mark.parametrize("name", ["reference/softmin_reference.cpp", "bench/bench_softmin.cpp"])
def test_nothing_is_overwritten(tree, name):
    (tree / name).write_text("mine", encoding="utf-8")
    refused(tree, f"{name} exists", *SOFTMIN)


def test_nothing_is_left_half_written(tree):
    (tree / "bench").rmdir()
    with pytest.raises(OSError):
        new.main(list(SOFTMIN))
    (tree / "bench").mkdir()
    assert written(tree) == []
    assert list((tree / "dev").iterdir()) == []


def declare_backward(tree):
    header = tree / "dev" / "softmin" / "softmin.h"
    header.write_text(header.read_text().replace("}  // namespace ladder::softmin\n", BACKWARD), encoding="utf-8")
    return header


def test_a_first_version_has_its_signature_from_the_header(tree):
    new.main(list(SOFTMIN))
    header = declare_backward(tree)
    refused(tree, "has no version yet", "softmin/backward", "naive", "--from", "1")
    refused(
        tree,
        "no pass 'softmin/sideways'; there are: softmin/forward; a further pass begins in dev/softmin/softmin.h: docs/add_a",
        "softmin/sideways",
        "naive",
    )
    refused(tree, "--layer writes a new layer: docs/add_a_layer.md", "sofmin/forward", "naive")
    assert new.main(["softmin/backward", "naive"]) == 0
    text = (tree / "dev" / "softmin" / "backward" / "v01_naive.cu").read_text()
    assert "__global__ void softmin_backward_v01_kernel(Problem size, const T* dy, T* dx) {" in text
    assert "LADDER_VERSION(ladder::softmin::Backward," in text
    refused(tree, "softmin/backward has versions: --from N", "softmin/backward", "again")
    shutil.rmtree(tree / "dev" / "softmin" / "backward")
    header.write_text(header.read_text().replace("void* dx;        // [m, n] dtype", "void* dx;"), encoding="utf-8")
    refused(tree, "'void* dx;  // [m, n] dtype'", "softmin/backward", "naive")
    header.write_text(header.read_text().replace("void* dx;", "int* dx;  // [m, n]"), encoding="utf-8")
    refused(tree, "or 'float* dx;  // [m, n]', not 'int* dx;  // [m, n]'", "softmin/backward", "naive")


def test_a_first_version_has_fp32_tensors_from_the_header(tree):
    new.main(list(SOFTMIN))
    header = declare_backward(tree)
    declared = re.sub(r"const void\* dy; +// \[m, n\] dtype", "const float* dy;  // [m, n]", header.read_text())
    declared = re.sub(r"  void\* dx; +// \[m, n\] dtype", "  float* dx;  // [m]", declared)
    header.write_text(declared, encoding="utf-8")
    assert new.main(["softmin/backward", "naive"]) == 0
    text = (tree / "dev" / "softmin" / "backward" / "v01_naive.cu").read_text()
    assert "__global__ void softmin_backward_v01_kernel(Problem size, const float* dy, float* dx) {" in text
    assert "from_float<float>(" in text and "stream, p, t.dy, t.dx);" in text


@pytest.mark.skipif(not shutil.which("clang-format"), reason="no clang-format")
def test_it_is_formatted(tree):
    new.main(
        ["norm2/q_sample", "--layer", "--problem", "n h c g", "--tensors", "x[n,h,c], w[c] -> y[n,h,c], mean[n,g]"]
    )
    sources = [tree / name for name in written(tree) if name.endswith((".h", ".cpp", ".cu"))]
    assert len(sources) == 5
    assert subprocess.run(["clang-format", "--dry-run", "--Werror", *sources]).returncode == 0


def test_the_commands_of_the_pages_are_taken(tree):
    """In the order of the page: a layer, a pass's first version, a version with a parent."""
    pages = [ROOT / "docs" / "add_a_layer.md", ROOT / "docs" / "add_a_version.md", ROOT / "README.md"]
    lines = [line for page in pages for line in re.findall(r"\./ladder new [^`\n]+", page.read_text(encoding="utf-8"))]
    shutil.copytree(ROOT / "dev" / "conv3x3", tree / "dev" / "conv3x3")
    tried = []
    for line in dict.fromkeys(line.strip() for line in lines):
        if "backward" in line:
            declare_backward(tree)
        assert new.main(shlex.split(line)[2:]) == 0, line
        tried.append(line)
    assert len(tried) == 3


class Built:
    """The layer's programs: its sources are compiled as silu's were, and take their place among what silu's are linked of."""

    def __init__(self, tree):
        self.tree = tree
        self.commands = {
            each["file"]: each["command"] for each in json.loads((BUILD / "compile_commands.json").read_text())
        }
        self.objects = {}
        for name in written(tree):
            if name.endswith((".cpp", ".cu")):
                self.compile(name)

    def compile(self, name):
        like = str(ROOT / name.replace("softmin", "silu"))
        output = str(self.tree / f"{name}.o").replace("/forward/", "_forward_")
        words = shlex.split(self.commands[like])
        words[words.index("-o") + 1], words[words.index("-c") + 1] = output, str(self.tree / name)
        self.run([words[0], "-Werror", f"-I{self.tree}", *words[1:]])
        self.objects[name] = output

    def program(self, name):
        """Links it as silu's: `name` is "bench_{}" or "tests/test_versions_{}"."""
        command = [tools.ninja(), "-C", str(BUILD), "-t", "commands", name.format("silu")]
        line = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        words = shlex.split(line.split(" && ")[1])
        ours = [
            self.objects[each] for each in self.objects if name.startswith("bench") or not each.startswith("bench/")
        ]
        output = self.tree / Path(name.format("softmin")).name
        words[words.index("-o") + 1] = str(output)
        self.run(
            [word for word in words if not re.search(r"/(?:ladder|bench)_silu\w*\.dir/|\.dir/\S*silu", word)] + ours
        )
        return output

    def run(self, command):
        done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def passed(self, program, *arguments):
        """((exit status, passed, failed), what it said)"""
        environment = {**os.environ, "LADDER_SOURCE_DIR": str(self.tree)}
        done = subprocess.run([program, *arguments], capture_output=True, text=True, env=environment)
        counts = re.search(r"(\d+) passed, (\d+) failed", done.stdout.splitlines()[-1])
        return (done.returncode, int(counts[1]), int(counts[2])), done.stdout


@pytest.fixture
def ready():
    programs = [BUILD / "bench_silu", BUILD / "tests" / "test_versions_silu"]
    if not all(program.exists() for program in programs):
        pytest.skip("no emulator build of silu")


def snippets():
    """The pieces of C++ on the page, without their indentation."""
    page = (ROOT / "docs" / "add_a_layer.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^       .*\n)+", page, re.MULTILINE)
    return [re.sub(r"^       ", "  ", block, flags=re.MULTILINE) for block in blocks]


def edit(file, pattern, text):
    changed, count = re.subn(pattern, lambda _: text, file.read_text(), flags=re.DOTALL)
    assert count == 1, (file, pattern)
    file.write_text(changed, encoding="utf-8")


def test_it_builds_and_passes_with_the_placeholder_and_with_the_formula_of_the_page(tree, ready):
    new.main(list(SOFTMIN))
    shutil.copytree(ROOT / "runtime" / "promoted", tree / "runtime" / "promoted")
    built = Built(tree)
    tests = built.program("tests/test_versions_{}")
    assert built.passed(built.program("bench_{}"), "--check")[0] == (0, 15, 0)
    (status, passed, failed), said = built.passed(tests)
    assert (status, failed) == (0, 0) and passed >= 10, said

    reference, kernel = snippets()
    edit(tree / "reference" / "softmin_reference.cpp", r"  for .*\n  }\n(?=  return)", reference)
    built.compile("reference/softmin_reference.cpp")
    assert built.passed(built.program("bench_{}"), "--check")[0] == (1, 0, 15)

    edit(tree / "dev" / "softmin" / "forward" / "v01_naive.cu", r"  y\[index\].*?\n", kernel)
    edit(
        tree / "dev" / "softmin" / "softmin.cpp",
        r'Role::output(.*?)"mn"',
        'Role::output, .dtype = p.dtype, .shape = {p.m, p.n}, .layout = "mn", .reduction_length = p.n',
    )
    edit(tree / "dev" / "softmin" / "softmin.cpp", r"\.n = 1 \+", ".n = 2 +")
    edit(tree / "dev" / "softmin" / "shapes.txt", r"one_n:[^\n]*\n", "")
    for name in ("dev/softmin/softmin.cpp", "dev/softmin/forward/v01_naive.cu"):
        built.compile(name)
    assert built.passed(built.program("bench_{}"), "--check")[0] == (0, 15, 0)
    (status, passed, failed), said = built.passed(built.program("tests/test_versions_{}"))
    assert (status, failed) == (0, 0) and passed >= 9, said
