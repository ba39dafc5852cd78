"""Compiler launcher: runs nvcc for the architectures that a source can run on, and keeps what `ptxas -v` says in
<object>.ptxas instead of on the screen.

Started by CMake as `launch_nvcc.py nvcc ... -c <source> -o <object> ...`; tools/dev/resources.py reads the reports. A source
that says `.min_arch = 90` is not compiled for anything older, unless the build has nothing else: on an older GPU nobody
would start it, and compiling it there takes as long again.
"""

import re
import subprocess
import sys

PTXAS_CHATTER = re.compile(
    r"^ptxas info\s*:|^\s*\d+ bytes (stack frame|gmem)|^\s*Function properties for|^ptxas \.*info"
)
MIN_ARCH = re.compile(r"\.min_arch = (\d+)")
ARCH = re.compile(r"--generate-code=arch=compute_(\d+)")


def after(command, option):
    """What follows `option` in a command line; empty if it is not there."""
    return command[command.index(option) + 1] if option in command else ""


def for_source(command, source):
    """The command without the architectures that the source's min_arch rules out."""
    least = MIN_ARCH.search(source)
    archs = {option: int(match[1]) for option in command if (match := ARCH.match(option))}
    old = {option for option, arch in archs.items() if least and arch < int(least[1])}
    return command if len(old) == len(archs) else [option for option in command if option not in old]


def main(command):
    command = [word for word in command if word]  # CMake's place for a launcher of the user's own is mostly empty
    if after(command, "-c"):
        with open(after(command, "-c"), encoding="utf-8") as file:
            command = for_source(command, file.read())
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    report, rest = [], []
    for line in done.stdout.splitlines(keepends=True):
        (report if PTXAS_CHATTER.search(line) else rest).append(line)
    sys.stdout.write("".join(rest))
    if done.returncode == 0 and after(command, "-o"):
        with open(after(command, "-o") + ".ptxas", "w", encoding="utf-8") as file:
            file.write("".join(report))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
