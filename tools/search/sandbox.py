"""Programs that nobody vouches for: in a bubblewrap sandbox, without network, home or tree, with an end to time and memory.

The sandbox mounts the system's programs and libraries, and what the caller names. Its processes can write the folders
that are named so, and /tmp, which is the sandbox's own and small. Root's sandbox drops to another user before it runs them.
"""

import contextlib
import functools
import glob
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from pathlib import Path

from cli import tools
from cli.errors import Failure

from . import system_calls

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_CONFIGURATION = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_TMP_BYTES = 1 << 30
_FILE_BYTES = 1 << 28  # of any one file
_WORDS_BYTES = 1 << 20  # of what a candidate says before it ends
_FILES = 64  # that a candidate may open
_MORE_TASKS = 64 + 4 * (os.cpu_count() or 1)  # of a candidate: a launch of the emulator has a thread for each core
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TMPDIR": "/tmp", "CUDA_CACHE_DISABLE": "1"}
_KEPT = ("LADDER_WATCHDOG_SECONDS", "CUDA_VISIBLE_DEVICES")  # of the caller's environment
SCRATCH = Path("/scratch")  # the place inside of a folder that a candidate's compiler writes
_CCBIN = "-ccbin="
_NOBODY = 65534  # user and group of a root caller's sandbox
# A user namespace maps root to root, so root's sandbox has none: the uid is dropped inside, after the mounts are made.
_NAMESPACES = "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try".split()
_MAY_DROP = "--cap-add CAP_SETUID --cap-add CAP_SETGID".split()
_DROP = f"setpriv --reuid={_NOBODY} --regid={_NOBODY} --clear-groups --inh-caps=-all".split()


@functools.cache
def lacking():
    """Empty, or why there is no sandbox here."""
    if not shutil.which("bwrap"):
        return "no bwrap (Debian's package bubblewrap; ./ladder setup --dev installs it)"
    done = tools.captured(*command(["true"], memory=1 << 30, candidate=True))
    user = f" as root, which drops to user {_NOBODY}" if _is_root() else ""
    return "" if done.returncode == 0 else f"bwrap does not work here{user}: {tools.last_line(done.stderr)}"


def command(words, *, memory, read=(), write=(), folder="/", candidate=False, tmp=False, gpu=False, sandboxed=True):
    """The command that runs `words` in a sandbox, in `folder`, each of its processes with at most `memory` bytes. `read` and
    `write` are folders, at their own places or {place outside: place inside}. A candidate's processes have a /tmp only with
    `tmp`, are few and, without a GPU, share no memory. Without `sandboxed`, the command has the limits and the small
    environment alone. Throws Failure where root's sandbox cannot read one of the folders."""
    limits = {"c": 0, "d": memory // 1024, "f": _FILE_BYTES // 512}
    if candidate and not gpu:
        limits.update(f=_WORDS_BYTES // 512, n=_FILES)
    if not candidate:  # the emulator's buffers reserve 2 GiB of addresses each, and a GPU's driver far more
        limits["v"] = memory // 1024
    start = "".join(f"ulimit -{letter} {most}; " for letter, most in limits.items())
    environment = {**_ENVIRONMENT, **{name: os.environ[name] for name in _KEPT if name in os.environ}}
    settings = [f"{name}={value}" for name, value in environment.items()]
    words = [str(word) for word in words]
    if sandboxed:
        filter_file = system_calls.filter_file() if candidate and not gpu else None
        start += f"exec 9<{filter_file}; " if filter_file else ""
        filtered = ["--seccomp", "9"] if filter_file else []
        limited = ["prlimit", f"--nproc={_num_tasks() + _MORE_TASKS}"] if candidate else []
        words = [*_bwrap(filtered, read, write, folder, tmp or not candidate, gpu), *limited, *words]
    # Process 1 of a sandbox is bwrap, whose environment anything inside may read: it is emptied before bwrap starts.
    start += 'cd "$0" && exec env -i "$@"'
    return ["/bin/sh", "-c", start, "/" if sandboxed else str(folder), *settings, *words]


def _bwrap(filtered, read, write, folder, tmp, gpu):
    bwrap = [shutil.which("bwrap") or "bwrap", *"--die-with-parent --new-session --cap-drop ALL".split(), *filtered]
    bwrap += [*_NAMESPACES, *_MAY_DROP] if _is_root() else ["--unshare-all"]
    for place in _SYSTEM:
        if os.path.islink(place):
            bwrap += ["--symlink", os.readlink(place), place]
        else:
            bwrap += ["--ro-bind-try", place, place]
    bwrap += ["--dir", "/etc"]
    for place in _CONFIGURATION:
        bwrap += ["--ro-bind-try", place, place]
    bwrap += ["--proc", "/proc", *_kernel_files(), "--dev", "/dev"]
    if gpu:
        bwrap += ["--ro-bind", "/sys", "/sys"]
        for device in sorted(glob.glob("/dev/nvidia*")):
            bwrap += ["--dev-bind", device, device]
    bwrap += ["--remount-ro", "/dev"]
    if tmp:
        bwrap += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp"]
    for option, places in (("--ro-bind", read), ("--bind", write)):
        for outside in places:
            inside = Path(places[outside] if isinstance(places, dict) else outside)
            # A folder that a bind makes is closed to all but its owner; one of --dir is open.
            bwrap += [word for parent in reversed(inside.parents) for word in ("--dir", str(parent))]
            bwrap += [option, str(outside), str(inside)]
    bwrap += ["--dir", str(folder), "--remount-ro", "/", "--chdir", str(folder)]
    if _is_root():
        _hand_over(read, write)
        bwrap += _DROP
    return bwrap


def _kernel_files():
    """Options that bind all of /proc but its processes read-only. cuInit() fails where those are read-only too."""
    shared = [entry.path for entry in os.scandir("/proc") if not entry.name.isdigit() and not entry.is_symlink()]
    return [word for path in sorted(shared) for word in ("--ro-bind-try", path, path)]


def _num_tasks():
    """Threads on this machine of the user who runs a sandbox's processes: all of them count for that user's limit."""
    user, total = str(_NOBODY if _is_root() else os.getuid()), 0
    for file in glob.iglob("/proc/[0-9]*/status"):
        with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
            about = dict(line.split(":", 1) for line in lines)
            total += int(about["Threads"]) if about["Uid"].split()[0] == user else 0
    return total


def _is_root():
    return os.geteuid() == 0


def _hand_over(read, write):
    """Have _NOBODY own all that is in the folders `write`. Throws Failure where it may not read one of `read`."""
    for place in (path for folder in write for path in (Path(folder), *Path(folder).rglob("*"))):
        os.chown(place, _NOBODY, _NOBODY, follow_symlinks=False)
    for place in read:
        about = os.stat(place)
        needed = 0o005 if stat.S_ISDIR(about.st_mode) else 0o004
        if about.st_uid != _NOBODY and about.st_mode & needed != needed:
            raise Failure(f"user {_NOBODY}, as whom root's sandbox runs, may not read {place}: chmod -R o+rX {place}")


def outside(words, tree):
    """The folders that a compiler's or a linker's command line names and no sandbox has by itself, but for the tree's own."""
    found = {Path(words[0]).resolve().parents[1]}
    for compiler in [Path(word[len(_CCBIN) :]) for word in words if word.startswith(_CCBIN)]:  # nvcc's host compiler
        found |= {compiler.parent, compiler.resolve().parents[1]}
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


def besides(places):
    """{place: place} of those that no sandbox has by itself, without what is inside another one."""
    found = []
    for place in sorted({Path(place) for place in places}):
        if not any(place.is_relative_to(mounted) for mounted in (*map(Path, _SYSTEM), *found)):
            found.append(place)
    return {place: place for place in found}


def run(words, seconds):
    """(exit status, first 64 KiB of output) of a command; the status is None where it took `seconds` and was ended."""
    with tempfile.TemporaryFile() as file:  # nameless, so that no candidate puts a link in its place
        with started(words, stdout=file, stderr=subprocess.STDOUT) as process:
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
        file.seek(0)
        return status, file.read(1 << 16).decode(errors="replace")


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
