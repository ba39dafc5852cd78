"""Paths of the tree. Everything that the CLI fetches lies in PRIVATE; removing that folder undoes it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRIVATE = ROOT / ".ladder"
SETUP_LOG = PRIVATE / "setup.log"
BUILD = ROOT / "build"

PRESETS = ("emulator", "clang", "cuda", "profile", "sanitize", "tsan", "fuzz")
CUDA_PRESETS = ("cuda", "profile")
