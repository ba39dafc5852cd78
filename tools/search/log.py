"""results/search/<layer>-<pass>.jsonl: the candidates of a search, one JSON object per line, in the order of their
verdicts.

A node is one candidate. Its parent is a version ("v08"), another node (its number) or null. A node stores the diff from
its parent's source, so that every source can be rebuilt from a version's file; if `parent_sha256` is null, the diff is
from an empty source. results/SCHEMA.md lists the fields.
"""

import contextlib
import datetime
import difflib
import fcntl
import hashlib
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path

from cli import json_file, paths, tools
from cli.errors import Failure

VERDICTS = ("PASS", "FAIL", "SKIP", "UNTRUSTED")
_MADE_HERE = ("node", "round", "branch", "parent_sha256", "sha256", "diff")
_OPTIONAL = ("published", "version")
FIELDS = tuple(
    "node parent round branch idea verdict reason problem dtype device us cold_us baseline baseline_us ratio error "
    "wall_s at commit published version parent_sha256 sha256 diff".split()
)

_FILE = "source.cu"  # name of a candidate's source in diffs


def path(layer, pass_name, root=None):
    return (root or paths.ROOT) / "results" / "search" / f"{layer}-{pass_name}.jsonl"


def read(layer, pass_name, root=None):
    """(nodes, damaged): the records in the file's order, and a message for each line that is no record."""
    try:
        return _parse(path(layer, pass_name, root).read_bytes(), path(layer, pass_name, root).name)
    except FileNotFoundError:
        return [], []


def append(layer, pass_name, record, root=None):
    """Adds a node and returns its number. `record` has the log's fields other than _MADE_HERE, and "source", the
    candidate's text (none for a published node). Throws Failure and then leaves the log unchanged."""
    unknown = set(record) - set(FIELDS) - {"source"} | set(record) & set(_MADE_HERE)
    if unknown or record.get("verdict") not in VERDICTS:
        raise Failure(f"search log: no field {min(unknown)}" if unknown else "search log: a node needs a verdict")
    source, parent = record.get("source"), record.get("parent")
    source = source and source.encode(errors="replace").decode()  # JSON allows lone surrogates, UTF-8 files do not
    with _locked(path(layer, pass_name, root)) as file:
        before = file.read()
        nodes, damaged = _parse(before, Path(file.name).name)
        parent_source = _parent_source(layer, pass_name, parent, nodes, root) if source is not None else None
        values = {
            "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": tools.git(root or paths.ROOT, "rev-parse", "HEAD"),
            **record,
            # Reserve a number for each damaged line, which may have been a node.
            "node": max([len(nodes) + len(damaged), *(node["node"] for node in nodes)]) + 1,
            "round": _of(parent, nodes)["round"] + 1 if isinstance(parent, int) else 0,
            "branch": sum(node["parent"] == parent for node in nodes) + 1,
            "parent_sha256": None if parent_source is None else digest(parent_source),
            "sha256": None if source is None else digest(source),
            "diff": None if source is None else difference(parent_source, source),
        }
        line = {name: _finite(values.get(name)) for name in FIELDS if name in values or name not in _OPTIONAL}
        _write_line(file, before, json.dumps(line, allow_nan=False))
    return line["node"]


def source_of(layer, pass_name, node, root=None):
    """Rebuilds the source of a node from its version's file and the diffs since. Throws Failure."""
    return _source(layer, pass_name, node, read(layer, pass_name, root)[0], root)


def difference(old, new):
    """Unified diff for `git apply`; `old` None stands for no file. Empty for equal texts."""
    name = "/dev/null" if old is None else f"a/{_FILE}"
    lines = difflib.unified_diff(_lines(old or ""), _lines(new), name, f"b/{_FILE}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def digested(text):
    """Length and digest of a text that is too long to keep."""
    raw = text.encode(errors="replace")
    return f"{len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()}"


def _source(layer, pass_name, node, nodes, root):
    chain = [_of(node, nodes)]
    while chain[-1]["parent_sha256"] and isinstance(chain[-1]["parent"], int):
        chain.append(_of(chain[-1]["parent"], nodes))
    text = _versions_source(layer, pass_name, chain[-1], root) if chain[-1]["parent_sha256"] else None
    for one in reversed(chain):
        text = _applied(text, one)
    return text


def _parent_source(layer, pass_name, parent, nodes, root):
    """The parent's source, to diff against; None for no parent. Throws Failure for an unknown parent. Returns None for
    one that cannot be rebuilt, such as a published node, so that the candidate's verdict is still logged."""
    if isinstance(parent, str):
        return _version_now(layer, pass_name, parent, root)
    if parent is not None:
        _of(parent, nodes)
        with contextlib.suppress(Failure):
            return _source(layer, pass_name, parent, nodes, root)
    return None


def _versions_source(layer, pass_name, node, root):
    """Source of the version that is the node's parent: today's file if its digest fits, else the node's commit's."""
    folder, wanted = f"dev/{layer}/{pass_name}", node["parent_sha256"]
    with contextlib.suppress(Failure):
        now = _version_now(layer, pass_name, node["parent"], root)
        if digest(now) == wanted:
            return now
    commit, root = str(node["commit"]), root or paths.ROOT
    for name in (tools.git(root, "ls-tree", "--name-only", commit, f"{folder}/") or "").splitlines():
        if name.startswith(f"{folder}/{node['parent']}_"):
            command = ["git", "-C", str(root), "show", f"{commit}:./{name}"]
            then = _text(subprocess.run(command, capture_output=True, env=tools.environment()).stdout)
            if digest(then) == wanted:
                return then
    raise Failure(
        f"node {node['node']} cannot be rebuilt: neither {folder}/{node['parent']} nor that of commit {commit[:7]} is "
        "what it was made from"
    )


def _version_now(layer, pass_name, version, root):
    found = sorted(((root or paths.ROOT) / "dev" / layer / pass_name).glob(f"{version}_*.cu"))
    if not found:
        raise Failure(f"{layer}/{pass_name} has no version {version}")
    return _text(found[0].read_bytes())


def _applied(text, node):
    """Applies a node's diff to its parent's source `text` (None for no file). Throws Failure."""
    if node["diff"] is None:
        raise Failure(f"node {node['node']} cannot be rebuilt: the log has no source of it")
    if text is not None and digest(text) != node["parent_sha256"]:
        raise Failure(f"node {node['node']} cannot be rebuilt: its parent's source is not what it was made from")
    made = text or ""
    if node["diff"]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / _FILE
            if text is not None:
                file.write_bytes(text.encode())
            # Shield git from repositories above the scratch folder and from the user's settings.
            apart = {"GIT_CEILING_DIRECTORIES": str(Path(folder).parent), "GIT_CONFIG_GLOBAL": os.devnull}
            env = {**tools.environment(), **apart}
            command = ["git", "apply", "--whitespace=nowarn", "-"]
            done = subprocess.run(command, cwd=folder, env=env, input=node["diff"].encode(), capture_output=True)
            made = _text(file.read_bytes()) if done.returncode == 0 and file.exists() else None
    if made is None or digest(made) != node["sha256"]:
        raise Failure(f"node {node['node']} cannot be rebuilt: its diff does not lead to the source that was judged")
    return made


def _of(number, nodes):
    for node in nodes:
        if node["node"] == number:
            return node
    raise Failure(f"the search has no node {number}; it has {len(nodes)} nodes")


def _parse(raw, name):
    nodes, damaged = {}, []
    for at, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            node = json_file.parse(line)
            number, parent = node["node"], node["parent"]
            node = {name: node.get(name) for name in FIELDS if name in node or name not in _OPTIONAL}
            if number in nodes:
                raise ValueError(f"a second node {number}")
            if not isinstance(number, int) or not isinstance(node["round"], int) or node["verdict"] not in VERDICTS:
                raise ValueError("no node, round or verdict")
            if not isinstance(parent, (int, str, type(None))) or isinstance(parent, int) and not 0 < parent < number:
                raise ValueError(f"parent {parent} of node {number}")
            if not isinstance(node.get("published") or {}, dict):
                raise ValueError("what was published")
            nodes[number] = node
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            damaged.append(f"{name}:{at}: not a node: {json_file.reason(error)}")
    return list(nodes.values()), damaged


@contextlib.contextmanager
def _locked(file):
    """Context manager of the log file, opened for reading and appending, under an exclusive lock."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "ab+", buffering=0) as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        opened.seek(0)
        yield opened


def _write_line(file, before, line):
    """Appends a line with one write. Terminates a killed writer's incomplete last line first."""
    data = (b"\n" if before and not before.endswith(b"\n") else b"") + line.encode() + b"\n"
    try:
        if file.write(data) != len(data):
            raise OSError("no space left")
        os.fsync(file.fileno())
    except OSError as error:
        file.truncate(len(before))
        raise Failure(f"cannot write {file.name}: {error}") from None


def _text(raw):
    """Decodes bytes; unlike read_text(), keeps line ends, and with them the digest."""
    return raw.decode(errors="replace")


def _lines(text):
    """Splits text at line feeds only, like git; str.splitlines() would split at other characters too."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]


def _finite(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value
