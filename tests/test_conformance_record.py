"""The emulator against what a GPU once answered: results/<device>/*_conformance.json.xz, wrapper by wrapper."""

import lzma
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "emulator" / "tests" / "conformance"


class Conformance(unittest.TestCase):
    def test_the_emulator_agrees_with_every_recorded_gpu(self):
        if not PROGRAM.exists():
            self.skipTest(f"{PROGRAM.relative_to(ROOT)} is not built")
        records = sorted((ROOT / "results").glob("*/*_conformance.json.xz"))
        self.assertTrue(records, "results/ holds no conformance record")
        with tempfile.TemporaryDirectory() as folder:
            ours = Path(folder) / "emulator.json"
            subprocess.run([PROGRAM, "--out", ours], check=True, capture_output=True)
            for record in records:
                theirs = Path(folder) / record.stem
                theirs.write_bytes(lzma.decompress(record.read_bytes()))
                result = subprocess.run([PROGRAM, "--compare", theirs, ours], capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, f"{record.name}:\n{result.stdout}{result.stderr}")
                self.assertIn("wrappers agree", result.stdout)

                tampered = theirs.read_text().replace('"tma_bf16"', '"tma_bf17"')
                theirs.write_text(tampered)
                result = subprocess.run([PROGRAM, "--compare", theirs, ours], capture_output=True, text=True)
                self.assertNotEqual(result.returncode, 0, "a record without a wrapper must not agree")


if __name__ == "__main__":
    sys.exit(unittest.main())
