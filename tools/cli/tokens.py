"""Digests of the preprocessed tokens of a build's objects: comments, line breaks and line numbers are no part of them.

A digest is remembered in the build's folder with its compile command and the sizes and times of all files that the
preprocessor read, so that a source is preprocessed again only after one of them was written.
"""

import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import files, paths, say, tools

_MEMORY = (
    "tokens.json"  # {"files": [path], "objects": {object: [command digest, [index of a file], stamp, token digest]}}
)
# Options that choose warnings, headers or names of files, all of which the tokens show or the object does not.
_NO_CODE = re.compile(r" (?:-W(?![alp],)|-I|-isystem |-o |-c )\S+")
# A precompiled header is read as the text that it was made of.
_PRECOMPILED = re.compile(r" -Xclang -include-pch -Xclang \S+| -Winvalid-pch")
# The commit in a build's build_info.h names records, and decides nothing.
_COMMIT = re.compile(rb'k(?:Commit = "[^"]*"|Dirty = \w+)')


class Tokens:
    def __init__(self, folder, root=paths.ROOT):
        """Read the compile commands of the build in `folder`, which are up to date."""
        self._folder, self._root = folder, root
        commands = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
        self._commands = {re.search(r" -o (\S+)", one["command"])[1]: one for one in commands}
        self._memory = self._remembered()

    def source(self, target):
        """The source of an object, relative to the root: "dev/silu/silu.cpp"."""
        return os.path.relpath(self._commands[target]["file"], self._root)

    def of(self, objects):
        """{object: digest} of its tokens, its compiler and the options that choose its code, without the objects whose
        source the preprocessor refuses."""
        stamp_of = functools.cache(_stamp)
        commands = {each: self._command_digest(each) for each in objects}
        found = {each: digest for each in objects if (digest := self._from_memory(each, commands[each], stamp_of))}
        missing = [each for each in objects if each not in found]
        with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            depfiles = [Path(scratch) / str(i) for i in range(len(missing))]
            results = pool.map(self._preprocessed, missing, depfiles)
            for i, (each, done) in enumerate(zip(missing, results, strict=True), 1):
                say.progress(f"preprocessing {self._folder.name}: {i} of {len(missing)} sources")
                if done:
                    digest, read, stamp = done
                    self._memory[each] = [commands[each], read, stamp, digest]
                    found[each] = digest
        if missing:
            self._remember()
        return {each: _digest(f"{digest} {self._flags(each)}".encode()) for each, digest in found.items()}

    def _command(self, target):
        return _PRECOMPILED.sub("", self._commands[target]["command"])

    def _flags(self, target):
        """The compiler and its command without what the tokens show, as it reads in every clone."""
        command = self._command(target)
        return f"{compiler(command.split()[0])} {of_code(command).replace(str(self._root), '.')}"

    def _command_digest(self, target):
        command = self._command(target)
        return _digest(f"{compiler(command.split()[0])} {command}".encode())

    def _preprocessed(self, target, depfile):
        """(token digest, files read, their stamp), or None. No stamp where a file was written meanwhile."""
        words = shlex.split(self._command(target))
        del words[words.index("-o") : words.index("-o") + 2]
        words[words.index("-c") : words.index("-c") + 1] = ["-E", "-P", "-MD", "-MT", "it", "-MF", str(depfile)]
        began = time.time_ns()
        done = subprocess.run(words, cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode != 0:
            return None
        text = _COMMIT.sub(b"", done.stdout).replace(str(self._root).encode(), b".").strip()
        listed = depfile.read_text(encoding="utf-8").replace("\\\n", " ").split()[1:]
        read = [os.path.join(self._folder, name) for name in dict.fromkeys(listed)]
        stamps = [_stamp(name) for name in read]
        settled = all(stamp and stamp[1] < began for stamp in stamps)
        return _digest(text), read, _digest(repr(stamps).encode()) if settled else ""

    def _from_memory(self, target, command, stamp_of):
        command_then, read, stamp, digest = self._memory.get(target, ("", (), "", None))
        unchanged = command_then == command and stamp == _digest(repr([stamp_of(name) for name in read]).encode())
        return digest if unchanged else None

    def _remembered(self):
        try:
            raw = json.loads((self._folder / _MEMORY).read_text(encoding="utf-8"))
            names = raw["files"]
            return {
                key: [command, [names[i] for i in read], stamp, digest]
                for key, (command, read, stamp, digest) in raw["objects"].items()
            }
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return {}

    def _remember(self):
        numbers = {}
        objects = {
            key: [command, [numbers.setdefault(name, len(numbers)) for name in read], stamp, digest]
            for key, (command, read, stamp, digest) in self._memory.items()
            if key in self._commands
        }
        files.replace(self._folder / _MEMORY, json.dumps({"files": list(numbers), "objects": objects}))


def of_code(options):
    """The options that choose what code is made, with a space between two."""
    return " ".join(_NO_CODE.sub("", options).split())


@functools.cache
def compiler(*command):
    """The compiler's name and version, as it says them."""
    return tools.captured(*command, "--version").stdout.partition("\n")[0]


def _stamp(name):
    """Size and time of a file, None where there is none."""
    try:
        there = os.stat(name)
    except OSError:
        return None
    return there.st_size, there.st_mtime_ns


def _digest(data):
    return hashlib.sha256(data).hexdigest()[:16]
