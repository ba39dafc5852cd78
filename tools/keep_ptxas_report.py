"""Compiler launcher: runs nvcc and keeps what `ptxas -v` says in <object>.ptxas instead of on the screen.

Started by CMake as `keep_ptxas_report.py nvcc ... -o <object> ...`; tools/resources.py reads the reports.
"""

import re
import subprocess
import sys

PTXAS_CHATTER = re.compile(
    r"^ptxas info\s*:|^\s*\d+ bytes (stack frame|gmem)|^\s*Function properties for|^ptxas \.*info"
)


def main(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    report, rest = [], []
    for line in done.stdout.splitlines(keepends=True):
        (report if PTXAS_CHATTER.search(line) else rest).append(line)
    sys.stdout.write("".join(rest))
    if done.returncode == 0 and "-o" in command:
        with open(command[command.index("-o") + 1] + ".ptxas", "w", encoding="utf-8") as file:
            file.write("".join(report))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
