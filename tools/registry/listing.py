"""Listing of layers, their passes and versions, and sets of named problems, read from the tree's sources alone.

    dev/<layer>/<layer>.h                    the layer's default pass: `static constexpr bool kDefault = true`
    dev/<layer>/<pass>/vNN_<idea>.cu         a version, described by its header comment and registration
    dev/<layer>/shapes.txt                   `[set]`, then `name: problem`, a line each

All tools use this module; `./ladder list --json` prints the listing for other programs.
"""

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

SCHEMA = "ladder.listing/1"

# {name in C++: word in problem lines and command lines}, in the order of tables.
CPP_DTYPES = {"f32": "fp32", "tf32": "tf32", "bf16": "bf16", "f16": "fp16"}
DTYPES = tuple(CPP_DTYPES.values())

_NAME = re.compile(r"\w+")
_FILE = re.compile(r"v(\d\d)_([a-z0-9_]+)\.cu")
_FIELD = re.compile(r"// (Idea|Parent|Why|Needs|Spills):\s*(.*)")
_DTYPES = re.compile(r"\.dtypes\s*=\s*\{([^}]*)\}")
_MIN_ARCH = re.compile(r"\.min_arch\s*=\s*(\d+)")
_ARCH_SPECIFIC = re.compile(r"\.arch_specific\s*=\s*true")
_STRUCT = re.compile(r"^struct \w+ \{.*?^\};", re.MULTILINE | re.DOTALL)
_PASS_NAME = re.compile(r'\bkName = "(\w+)"')
_IS_DEFAULT = re.compile(r"\bkDefault = true\b")


@dataclass(frozen=True)
class Version:
    number: int
    idea: str  # "smem_tile"
    file: "Path | None" = None  # None for a version known only from a record
    dtypes: tuple = ()  # empty if the registration's dtypes cannot be parsed
    arch: str = ""  # "sm_90a"; "" for any
    header: dict = field(
        default_factory=dict
    )  # fields of the header comment: "idea", "parent" (number or None), "why", "needs", "spills"

    @property
    def label(self):
        return f"v{self.number:02d}_{self.idea}"


@dataclass(frozen=True)
class Pass:
    layer: str
    name: str
    versions: tuple  # by number

    @property
    def path(self):
        return f"{self.layer}/{self.name}"

    @property
    def numbers(self):
        return [version.number for version in self.versions]

    def version(self, number):
        """The Version, or None."""
        return next((version for version in self.versions if version.number == number), None)


@dataclass(frozen=True)
class Layer:
    name: str
    passes: tuple  # in the header's order
    default: str  # name of the default pass; "" if there are several and the header declares none
    sets: dict  # {set: {name: problem}}, in the file's order


@dataclass(frozen=True)
class Listing:
    root: Path
    layers: tuple

    @property
    def passes(self):
        return [a_pass for layer in self.layers for a_pass in layer.passes]

    def layer(self, name):
        """The Layer, or None."""
        return next((layer for layer in self.layers if layer.name == name), None)

    def find(self, path):
        """The Pass of "conv3x3/fprop", or None."""
        return next((a_pass for a_pass in self.passes if a_pass.path == path), None)

    def json(self, passes=None):
        """The listing as a JSON value (results/SCHEMA.md). `passes` restricts it to these; None for all."""
        shown = {a_pass.path for a_pass in (self.passes if passes is None else passes)}
        layers = [layer for layer in self.layers if any(a_pass.path in shown for a_pass in layer.passes)]
        return {"schema": SCHEMA, "layers": [_layer_json(layer, shown, self.root) for layer in layers]}

    def lines(self, passes, closely=False):
        """The listing as lines of text; `closely` adds each version's header fields and all problems."""
        lines = []
        for layer in self.layers:
            of_layer = [a_pass for a_pass in passes if a_pass.layer == layer.name]
            for a_pass in of_layer:
                lines += [
                    *([""] if lines else []),
                    a_pass.path + (" (default)" if a_pass.name == layer.default else ""),
                ]
                lines += [line for version in a_pass.versions for line in _version_lines(version, closely)]
            if of_layer:
                lines += ["", f"{layer.name}, problems by set"]
                lines += [line for name, cases in layer.sets.items() for line in _set_lines(name, cases, closely)]
        return lines


def read(root):
    """The Listing of the tree at `root`. A layer is a folder of dev/ with versions."""
    root = Path(root)
    names = sorted({file.parts[-3] for file in (root / "dev").glob("*/*/v*.cu") if _FILE.fullmatch(file.name)})
    return Listing(root, tuple(_layer(root, name) for name in names))


def versions(root, path):
    """Versions of dev/<path>, by number; empty for an unknown pass."""
    if not re.fullmatch(r"\w+/\w+", path):  # a path from a record is not trusted
        return ()
    found = []
    for file in (Path(root) / "dev" / path).glob("v*.cu"):
        name = _FILE.fullmatch(file.name)
        if name:
            text = file.read_text(encoding="utf-8")
            found.append(Version(int(name[1]), name[2], file, dtypes(text), _arch(text), header(text)))
    return tuple(sorted(found, key=lambda version: (version.number, version.idea)))


def dtypes(text):
    """The dtypes that a version's source registers; () where they cannot be parsed."""
    found = _DTYPES.search(text)
    words = re.findall(r"Dtype::(\w+)", found[1]) if found else []
    return tuple(sorted((CPP_DTYPES[word] for word in words if word in CPP_DTYPES), key=DTYPES.index))


def sets(root, layer):
    """{set: {name: problem}} of dev/<layer>/shapes.txt, or {}. The bench program, not this, reports malformed lines."""
    file = Path(root) / "dev" / layer / "shapes.txt"
    if not _NAME.fullmatch(layer) or not file.exists():
        return {}
    found, current = {}, None
    for line in file.read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            current = found.setdefault(line.strip("[] "), {})
        elif line and current is not None:
            name, _, problem = line.partition(":")
            current[name.strip()] = " ".join(problem.split())
    return found


def sets_of_tables(root, layer):
    """Sets that the tables and the dashboard show: the U-Net's; for a layer outside the U-Net, the set published
    (problems of published benchmarks), else perf."""
    there = sets(root, layer)
    for is_shown in (is_of_unet, "published".__eq__, "perf".__eq__):
        if found := {name: there[name] for name in there if is_shown(name)}:
            return found
    return {}


def is_of_unet(set_name):
    """Returns True if a set holds the U-Net's problems: unet, unet_bias."""
    return set_name.startswith("unet")


def header(text):
    """{field: text} of the header comment of a version's file; joins continued lines."""
    fields, current = {}, None
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        begins = _FIELD.match(line)
        if begins:
            current = begins[1].lower()
            fields[current] = begins[2].strip()
        elif current:
            fields[current] += " " + line[2:].strip()
    if "parent" in fields:
        number = re.search(r"v(\d+)", fields["parent"])
        fields["parent"] = int(number[1]) if number else None
    return fields


def _layer(root, name):
    folders = {file.parent.name for file in (root / "dev" / name).glob("*/v*.cu") if _FILE.fullmatch(file.name)}
    file = root / "dev" / name / f"{name}.h"
    structs = _STRUCT.findall(file.read_text(encoding="utf-8")) if file.exists() else []
    named = [(_PASS_NAME.search(struct)[1], struct) for struct in structs if _PASS_NAME.search(struct)]
    order = [pass_name for pass_name, _ in named if pass_name in folders]
    order += sorted(folders - set(order))
    default = next(
        (pass_name for pass_name, struct in named if _IS_DEFAULT.search(struct) and pass_name in folders), ""
    )
    if not default and len(order) == 1:
        default = order[0]
    passes = tuple(Pass(name, pass_name, versions(root, f"{name}/{pass_name}")) for pass_name in order)
    return Layer(name, passes, default, sets(root, name))


def _arch(text):
    least = _MIN_ARCH.search(text)
    return f"sm_{least[1]}{'a' if _ARCH_SPECIFIC.search(text) else ''}" if least else ""


def _version_lines(version, closely):
    yield f"  {version.label:<28} {' '.join(version.dtypes):<20} {version.arch}".rstrip()
    if closely:
        for field in ("idea", "needs"):
            text = f"{field.capitalize()}: {version.header.get(field, 'not said')}"
            yield from textwrap.wrap(text, 116, initial_indent="      ", subsequent_indent="      ")


def _set_lines(name, cases, closely):
    if closely:
        yield f"  {name}"
        yield from (f"    {case:<20} {problem}" for case, problem in cases.items())
    else:
        yield from textwrap.wrap(
            f"{name + ':':<6} {' '.join(cases)}",
            116,
            initial_indent="  ",
            subsequent_indent="         ",
            break_on_hyphens=False,
        )


def _layer_json(layer, shown, root):
    passes = [
        {
            "name": a_pass.name,
            "path": a_pass.path,
            "default": a_pass.name == layer.default,
            "versions": [_version_json(version, root) for version in a_pass.versions],
        }
        for a_pass in layer.passes
        if a_pass.path in shown
    ]
    return {"name": layer.name, "default_pass": layer.default or None, "passes": passes, "sets": layer.sets}


def _version_json(version, root):
    return {
        "number": version.number,
        "idea": version.idea,
        "label": version.label,
        "file": str(version.file.relative_to(root)),
        "dtypes": list(version.dtypes),
        "arch": version.arch or None,
        "header": version.header,
    }
