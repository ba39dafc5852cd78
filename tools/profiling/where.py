"""Search for NVIDIA's tools, on PATH and elsewhere."""

import glob
import os
import re
import shutil

from cli.paths import PRIVATE


def find(program, *more):
    """Path of `program`: on PATH, in a CUDA toolkit's bin/, or by the glob patterns `more`, newest first; or None."""
    path = shutil.which(program)
    if path:
        return path
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    patterns = [os.path.join(home, "bin", program) for home in homes]
    patterns += [f"/usr/local/cuda*/bin/{program}", f"/opt/cuda/bin/{program}"]
    patterns += [f"{PRIVATE}/*/nvidia/cu13/bin/{program}"]
    for pattern in [*patterns, *more]:
        for path in sorted(glob.glob(pattern), key=_numbers, reverse=True):
            if os.access(path, os.X_OK):
                return path
    return None


def _numbers(path):
    return [int(digits) for digits in re.findall(r"\d+", path)]
