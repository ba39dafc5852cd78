"""The emulator against what a GPU once answered: results/<device>/*_conformance.json.xz, wrapper by wrapper."""

import json
import lzma
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "emulator" / "tests" / "conformance"

# Wrappers that are younger than the newest record: no GPU has answered for them yet.
UNRECORDED = {
    "cluster_tma_multicast_2",
    "cluster_tma_multicast_4",
    "grid_barrier",
    "wgmma_a_registers_bf16_n48",
    "wgmma_a_registers_f16_n96",
    "wgmma_a_registers_tf32_n64",
    "wgmma_rows_bf16_n32_64_bytes",
    "wgmma_rows_bf16_n64_64_bytes",
    "wgmma_rows_f16_n32_64_bytes",
    "wgmma_rows_f16_n64_128_bytes",
}


def test_the_emulator_agrees_with_every_recorded_gpu(tmp_path):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM.relative_to(ROOT)} is not built")
    records = sorted((ROOT / "results").glob("*/*_conformance.json.xz"))
    assert records, "results/ holds no conformance record"
    ours = tmp_path / "emulator.json"
    subprocess.run([PROGRAM, "--out", ours], check=True, capture_output=True)
    for record in records:
        theirs = tmp_path / record.stem
        theirs.write_bytes(lzma.decompress(record.read_bytes()))
        assert unrecorded(theirs, ours) == UNRECORDED, f"{record.name} or the list above is not of this day"
        known = tmp_path / "known.json"
        known.write_text(json.dumps(without(ours, UNRECORDED)))
        result = subprocess.run([PROGRAM, "--compare", theirs, known], capture_output=True, text=True)
        assert result.returncode == 0, f"{record.name}:\n{result.stdout}{result.stderr}"
        assert "wrappers agree" in result.stdout

        tampered = theirs.read_text().replace('"tma_bf16"', '"tma_bf17"')
        theirs.write_text(tampered)
        result = subprocess.run([PROGRAM, "--compare", theirs, known], capture_output=True, text=True)
        assert result.returncode != 0, "a record without a wrapper must not agree"


def unrecorded(theirs, ours):
    return json.loads(ours.read_text())["wrappers"].keys() - json.loads(theirs.read_text())["wrappers"].keys()


def without(dump, names):
    whole = json.loads(dump.read_text())
    return {**whole, "wrappers": {name: w for name, w in whole["wrappers"].items() if name not in names}}
