"""The emulator against what a GPU once answered: results/<device>/conformance/*.json.xz, wrapper by wrapper."""

import json
import lzma
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "emulator" / "tests" / "conformance"


def test_the_emulator_agrees_with_every_recorded_gpu(tmp_path):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM.relative_to(ROOT)} is not built")
    records = sorted((ROOT / "results").glob("*/conformance/*.json.xz"))
    assert records, "results/ holds no conformance record"
    ours = tmp_path / "emulator.json"
    subprocess.run([PROGRAM, "--out", ours], check=True, capture_output=True)
    asked = wrappers(ours)
    unrecorded = set(asked)
    for record in records:
        theirs = tmp_path / record.stem
        theirs.write_bytes(lzma.decompress(record.read_bytes()))
        recorded = wrappers(theirs)
        unrecorded -= set(recorded)
        # An older record lacks the wrappers that came after it.
        known = tmp_path / "known.json"
        known.write_text(
            json.dumps(
                {**json.loads(ours.read_text()), "wrappers": {name: asked[name] for name in asked if name in recorded}}
            )
        )
        result = subprocess.run([PROGRAM, "--compare", theirs, known], capture_output=True, text=True)
        assert result.returncode == 0, f"{record.name}:\n{result.stdout}{result.stderr}"
        assert "wrappers agree" in result.stdout

        tampered = theirs.read_text().replace('"tma_bf16"', '"tma_bf17"')
        theirs.write_text(tampered)
        result = subprocess.run([PROGRAM, "--compare", theirs, known], capture_output=True, text=True)
        assert result.returncode != 0, "a record without a wrapper must not agree"
    assert not unrecorded, "no GPU has answered for these: conformance --out on one makes a record"


def wrappers(dump):
    return json.loads(dump.read_text())["wrappers"]
