"""A tree with the layer toy, whose bench program is a script, for the tests of ./ladder record."""

import json
import sys
import textwrap

import made_records
from records import record_files

# Behaves as bench_<layer> does towards the verb. It dies after as many new results as the file `patience` says.
BENCH = """\
#!{python}
import json, os, sys
from pathlib import Path
here = Path(__file__).parent
made = json.loads((here / "record.json").read_text())
words = sys.argv[1:]
if "--environment" in words:
    print(json.dumps(made["environment"]))
    sys.exit(0)
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
def word(flag, otherwise=None):
    return words[words.index(flag) + 1] if flag in words else otherwise
if word("--set") == "ci":
    print("bench: unknown set: ci", file=sys.stderr)
    sys.exit(2)
versions = word("--version").split(",")
lines = [value for flag, value in zip(words, words[1:]) if flag == "--problem"]
results = [r for r in made["results"] if word("--dtype") in (None, r["dtype"]) and word("--pass") == r["pass"]
           and (versions == ["all"] or str(r["version"]) in versions) and (not lines or r["problem"] in lines)]
if "--benchmark_list_tests" in words:
    for r in results:
        print(f"toy/{{r['pass']}}/v{{r['version']:02d}}_{{r['idea']}}/{{r['problem']}}/iterations:1/manual_time")
    sys.exit(0)
file = Path(word("--record"))
partial = Path(str(file) + ".partial")
assert partial.exists() == ("--resume" in words)
if not partial.exists():
    partial.write_text(json.dumps({{"environment": made["environment"]}}) + "\\n")
done = partial.read_text().count("\\n") - 1
patience = int((here / "patience").read_text())
for r in results[done:]:
    if patience == 0:
        print("the machine went away", file=sys.stderr)
        sys.exit(137)
    patience -= 1
    with open(partial, "a") as out:
        out.write(json.dumps(r) + "\\n")
partial.unlink()
made["results"] = results
file.write_text(json.dumps(made))
sys.exit(1 if any(r["verdict"]["status"] == "FAIL" for r in results) else 0)
"""


SHAPES = """\
[ci]
small: n1 c16
[perf]
top:   n32 c64
[unet]
res64: n32 c64
"""


class Toy:
    """A tree with the layer toy, whose pass fprop has v01 to v03."""

    def __init__(self, tmp_path, capsys):
        self.root, self.capsys = tmp_path, capsys
        self.results = self.root / "results"
        self.code = {
            "sm_90": {"nvcc": "13.0.88", "versions": {f"toy/fprop/v0{number}": str(number) for number in (1, 2, 3)}}
        }
        for number in (1, 2, 3):
            self.add_version("fprop", number)
        (self.root / "dev" / "toy" / "shapes.txt").write_text(SHAPES)
        self.bench = self.root / "build" / "bench_toy"
        self.bench.parent.mkdir()
        self.bench.write_text(textwrap.dedent(BENCH).format(python=sys.executable))
        self.bench.chmod(0o755)
        made = ((1, 200e-6, "n32 c64 bf16"), (2, 50e-6, "n32 c64 bf16"), (1, 300e-6, "n32 c64 fp32"))
        self.set_up([made_records.result(*each) for each in made])

    def add_version(self, pass_name, number, dtypes=("f32", "bf16")):
        file = self.root / "dev" / "toy" / pass_name / f"v{number:02d}_idea_{number}.cu"
        file.parent.mkdir(parents=True, exist_ok=True)
        named = ", ".join(f"ladder::Dtype::{dtype}" for dtype in dtypes)
        file.write_text(f"LADDER_VERSION(toy::Pass, {{.launch = launch, .dtypes = {{{named}}}}})\n")

    def set_up(self, results, patience=99, **fields):
        made_records.write(self.bench.parent / "record.json", made_records.record(results, **fields))
        self.set_patience(patience)

    def set_patience(self, patience):
        (self.bench.parent / "patience").write_text(str(patience))

    def calls(self):
        return [json.loads(line) for line in (self.bench.parent / "calls").read_text().splitlines()]

    def files(self):
        return sorted(file.name for file in (self.results / "h200").iterdir())

    def only_record(self):
        (name,) = self.files()
        return record_files.load(self.results / "h200" / name)
