"""Programs that nobody vouches for: in a bubblewrap sandbox, without network, home or tree, with an end to time and memory.

What is mounted: the system's programs and libraries, and what the caller names; nothing of it can be written but the
folders that are named so, and /tmp, which is the sandbox's own and small.
"""

import contextlib
import functools
import glob
import os
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

from cli import tools

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_CONFIGURATION = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_TMP_BYTES = 1 << 30
_FILE_BYTES = 1 << 28  # of any one file
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TMPDIR": "/tmp", "CUDA_CACHE_DISABLE": "1"}
_KEPT = ("LADDER_WATCHDOG_SECONDS", "CUDA_VISIBLE_DEVICES")  # of the caller's environment


@functools.cache
def lacking():
    """Empty, or why there is no sandbox here."""
    if not shutil.which("bwrap"):
        return "no bwrap (Debian's package bubblewrap; ./ladder setup --dev installs it)"
    done = tools.captured(*command(["true"], memory=1 << 30))
    return "" if done.returncode == 0 else f"bwrap does not work here: {tools.last_line(done.stderr)}"


def command(words, *, memory, read=(), write=(), folder="/", tmp=True, gpu=False, sandboxed=True):
    """What runs `words` in a sandbox, in `folder`, each of its processes with at most `memory` bytes. `read` and `write` are
    folders, at their own places or {place outside: place inside}. Not `sandboxed`, it has the limits alone."""
    limits = f"ulimit -c 0; ulimit -d {memory // 1024}; ulimit -f {_FILE_BYTES // 512}; "
    words = [str(word) for word in words]
    environment = {**_ENVIRONMENT, **{name: os.environ[name] for name in _KEPT if name in os.environ}}
    if not sandboxed:
        settings = [f"{name}={value}" for name, value in environment.items()]
        return ["/bin/sh", "-c", limits + 'cd "$0" && exec env -i "$@"', str(folder), *settings, *words]
    bwrap = ["bwrap", *"--unshare-all --die-with-parent --new-session --cap-drop ALL --clearenv".split()]
    for name, value in environment.items():
        bwrap += ["--setenv", name, value]
    for place in _SYSTEM:
        if os.path.islink(place):
            bwrap += ["--symlink", os.readlink(place), place]
        else:
            bwrap += ["--ro-bind-try", place, place]
    for place in _CONFIGURATION:
        bwrap += ["--ro-bind-try", place, place]
    bwrap += ["--proc", "/proc", "--dev", "/dev"]
    if gpu:
        bwrap += ["--ro-bind", "/sys", "/sys"]
        for device in sorted(glob.glob("/dev/nvidia*")):
            bwrap += ["--dev-bind", device, device]
    bwrap += ["--remount-ro", "/dev"]
    if tmp:
        bwrap += ["--size", str(_TMP_BYTES), "--tmpfs", "/tmp"]
    for option, places in (("--ro-bind", read), ("--bind", write)):
        for outside in places:
            inside = places[outside] if isinstance(places, dict) else outside
            bwrap += [option, str(outside), str(inside)]
    bwrap += ["--remount-ro", "/", "--chdir", str(folder), *words]
    return ["/bin/sh", "-c", limits + 'exec "$@"', "sh", *bwrap]


def outside(words, tree):
    """The folders that a compiler's or a linker's command line names and no sandbox has by itself, but for the tree's own."""
    found = {Path(words[0]).resolve().parents[1]}
    for word in words[1:]:
        place = Path(re.sub("^-[IL]", "", word))
        if place.is_absolute() and place.exists():
            found.add(place.parent if place.is_file() else place)
    mounted = [*map(Path, _SYSTEM), tree]
    return [
        place
        for place in sorted(found)
        if place not in tree.parents and not any(place.resolve().is_relative_to(each) for each in mounted)
    ]


def run(words, seconds, output):
    """The exit status of a command, its words in the file `output`; None once it has taken `seconds` and was ended."""
    with open(output, "wb") as file, started(words, stdout=file, stderr=subprocess.STDOUT) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


@contextlib.contextmanager
def started(words, **more):
    """A process, which ends with all that it started when this is left, however it is left. `more` is of Popen."""
    with _lock:
        if _over:
            raise KeyboardInterrupt
        words = [str(word) for word in words]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, **more)
        _running.add(process)
    try:
        yield process
    finally:
        with _lock:
            _running.discard(process)
        _end(process)
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()


def end_all():
    """Ends what other threads have started, and has them start no more."""
    global _over
    with _lock:
        _over = True
        for process in _running:
            _end(process)


def _end(process):
    """Its group too: it leads one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


_lock = threading.Lock()
_running = set()
_over = False
