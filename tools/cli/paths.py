"""Where things are. Everything that the CLI fetches lies in PRIVATE; removing that folder undoes it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRIVATE = ROOT / ".ladder"
BUILD = ROOT / "build"
DEV = ROOT / "dev"

PRESETS = ("emulator", "clang", "cuda", "profile", "sanitize", "tsan")
CUDA_PRESETS = ("cuda", "profile")


def layers():
    """Names of the layers that have a benchmark."""
    return sorted(path.stem[len("bench_") :] for path in (ROOT / "bench").glob("bench_*.cpp"))
