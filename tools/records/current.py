"""results/machine_code.json: the digests of the versions' machine code (tools/dev/machine_code.py) in the newest CUDA build
that `./ladder record` or `./ladder resources --keep` has seen, so that tables without a build know which results are of it.

    {"sm_90": {"nvcc": "13.0.88", "versions": {"conv3x3/fprop/v07": "0123456789abcdef"}}}
"""

import json
from pathlib import Path

from cli import files
from cli.errors import Failure

NAME = "machine_code.json"
SIGN = "†"
LEGEND = f"{SIGN}: not known to be of today's machine code."


def keep(results, built):
    """Takes what machine_code.of_build() found into the file of the folder `results`, and returns whether it differed. Digests
    of another release of nvcc go."""
    kept = read(results)
    new = dict(kept)
    for arch, of_arch in built.items():
        before = kept.get(arch, of_arch)
        known = before["versions"] if before["nvcc"] == of_arch["nvcc"] else {}
        new[arch] = {"nvcc": of_arch["nvcc"], "versions": {**known, **of_arch["versions"]}}
    if new != kept:
        files.replace(Path(results) / NAME, json.dumps(new, indent=0, sort_keys=True) + "\n")
    return new != kept


def read(results):
    """The content of a folder's file; {} without one. Throws Failure."""
    file = Path(results) / NAME
    if not file.exists():
        return {}
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return {arch: {"nvcc": of["nvcc"], "versions": dict(of["versions"])} for arch, of in kept.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{file}: not what ./ladder resources --keep writes: {error!r}; remove it") from None


def mark(results, records):
    """Sets `is_dated` of the results of `records` that are not known to be of the machine code in the file; of none on a
    device whose records all are from before records had digests."""
    kept = read(results)
    devices = {record.device for record in records if record.machine_code}
    for record in records:
        if record.device in devices:
            today = kept.get(record.arch, {"versions": {}})["versions"]
            for result in record.results:
                result.is_dated = not result.machine_code or result.machine_code != today.get(result.version_name)
