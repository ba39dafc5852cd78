"""Packages of Debian and Ubuntu: through apt-get where we may, else unpacked into a private folder without root."""

import os
import re
import shutil

from . import run, say, tools
from .errors import Failure
from .paths import PRIVATE

UNPACKED = PRIVATE / "root"

# Packages that are unpacked privately: the asked ones and what they need of these projects. The rest of what they need
# (libc, libstdc++) comes with the compiler.
_PRIVATE_FAMILIES = re.compile(
    r"fmt|boost|benchmark|cli11|nlohmann|googletest|gtest|stb|xxhash|python3-pip-whl"
    r"|fonts-noto-color-emoji"
)


def present():
    return shutil.which("apt-get") is not None and shutil.which("dpkg") is not None


def rights():
    """The words before a command that needs root, or None where we have no such right."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo"):
        if tools.captured("sudo", "-n", "true").returncode == 0:
            return ["sudo", "-n"]
    return None


def install(packages, log):
    as_root = rights()
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run.logged("apt-get update", [*as_root, "apt-get", "update"], log, env)
    names = sorted(packages)
    run.logged(
        f"installing {' '.join(names)}",
        [*as_root, "apt-get", "install", "-y", "--no-install-recommends", *names],
        log,
        env,
    )


def unpack(packages, log):
    """Downloads `packages` and unpacks them into UNPACKED, all of them or none."""
    apt = ["apt-get"] + _private_state()
    run.logged("apt-get update (private)", [*apt, "update"], log)
    wanted = _closure(packages)

    debs = PRIVATE / "debs"
    fresh = PRIVATE / "root.new"
    shutil.rmtree(debs, ignore_errors=True)
    shutil.rmtree(fresh, ignore_errors=True)
    debs.mkdir(parents=True)
    if UNPACKED.exists():
        shutil.copytree(UNPACKED, fresh, symlinks=True)
    run.logged(f"downloading {len(wanted)} packages", ["env", "-C", str(debs), *apt, "download", *wanted], log)
    for deb in sorted(debs.glob("*.deb")):
        run.logged(f"unpacking {deb.name}", ["dpkg", "-x", str(deb), str(fresh)], log)
    shutil.rmtree(UNPACKED, ignore_errors=True)
    fresh.rename(UNPACKED)
    shutil.rmtree(debs)
    say.line(f"unpacked {' '.join(sorted(packages))} into {UNPACKED}")


def _private_state():
    """apt's lists and cache in a folder of ours: the system's are root's, and often empty."""
    state = PRIVATE / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    options = (
        f"Dir::State::Lists={state}/lists",
        f"Dir::Cache={state}/cache",
        "Debug::NoLocking=true",
        "APT::Sandbox::User=",
    )
    return [word for option in options for word in ("-o", option)]


def _closure(packages):
    """`packages` and their needs within _PRIVATE_FAMILIES."""
    kinds = "--no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances".split()
    done = tools.captured("apt-cache", *_private_state(), "depends", "--recurse", *kinds, *sorted(packages))
    if done.returncode != 0:
        raise Failure(f"apt-cache knows no {' '.join(sorted(packages))}: {tools.last_line(done.stderr)}")
    names = {line for line in done.stdout.splitlines() if re.match(r"^[a-z0-9]", line)}
    return sorted({name for name in names if _PRIVATE_FAMILIES.search(name) and ":" not in name})
