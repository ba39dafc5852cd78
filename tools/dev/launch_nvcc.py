"""Compiler launcher: runs nvcc for the architectures that a source supports, and writes the output of `ptxas -v` to
<object>.ptxas instead of the screen.

CMake starts it as `launch_nvcc.py nvcc ... -c <source> -o <object> ...`; tools/dev/resources.py reads the reports. A
source with `.min_arch = 90` is not compiled for older architectures, unless the build has no others: it never runs
there, and each architecture takes as long again to compile.
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
    """Argument that follows `option` in a command line; "" without the option."""
    return command[command.index(option) + 1] if option in command else ""


def for_source(command, source):
    """The command without architectures below the source's min_arch; unchanged if that would leave none."""
    least = MIN_ARCH.search(source)
    archs = {option: int(match[1]) for option in command if (match := ARCH.match(option))}
    old = {option for option, arch in archs.items() if least and arch < int(least[1])}
    return command if len(old) == len(archs) else [option for option in command if option not in old]


def main(command):
    command = [word for word in command if word]  # the user's own launcher is usually an empty argument
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
