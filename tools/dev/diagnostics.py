"""Filter of compiler output: shows each error and warning once, with its path relative to the source folder. Drops the
failed command line and the chains of includes and template instantiations."""

import os
import re

_DIAGNOSTIC = re.compile(r"(?P<path>[^\s:][^:]*):\d+(?::\d+)?: (?:fatal error|error|warning|note): ")
_CONTEXT = re.compile(
    r".*: (?:In|At) .*:$|.*:   +required |In file included from |\s+from .*[:,]$|.* recursively required"
)


class Diagnostics:
    """Filters one build's output, line by line."""

    def __init__(self, root):
        self._root = str(root) + os.sep
        self._seen = set()
        self._dropping = False  # inside a diagnostic that was shown before
        self._command_follows = False

    def shown(self, line):
        """Returns the line as it is to be shown; "" to drop it."""
        if self._command_follows:
            self._command_follows = False
            return ""
        self._command_follows = line.startswith("FAILED: ")
        if _CONTEXT.match(line.rstrip("\n")):
            return ""
        if _DIAGNOSTIC.match(line):
            line = line.removeprefix(self._root)
            said = re.sub(r" \[with [^]]*\]", "", line)
            self._dropping = said in self._seen
            self._seen.add(said)
        elif not line.startswith(" "):
            self._dropping = False
        return "" if self._dropping else line
