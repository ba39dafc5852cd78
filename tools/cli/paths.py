"""Paths of the tree. Everything that the CLI fetches lies in PRIVATE; removing that folder undoes it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRIVATE = ROOT / ".ladder"
SETUP_LOG = PRIVATE / "setup.log"
BUILD = ROOT / "build"

PRESETS = ("emulator", "clang", "cuda", "profile", "sanitize", "order", "fuzz")
CUDA_PRESETS = ("cuda", "profile")

# Folders with C++ or CUDA; tests are in a list of their own, as clang-tidy leaves them out.
LIBRARIES = ("core", "dev", "reference", "bench", "runtime", "nn", "io", "train", "policy", "python")
CPP_FOLDERS = (*LIBRARIES, "tests")
