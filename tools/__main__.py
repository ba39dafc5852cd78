"""`python3 tools MODULE [arguments]`: as `python3 -m MODULE`, but with this folder in the place of the caller's on
sys.path. ./ladder is `python3 tools cli`; `python3 -P` does the same only from 3.11."""

import runpy
import sys

if __name__ == "__main__":
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
