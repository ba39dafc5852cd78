"""What of a compiler's words is worth reading: each error and warning once, its path as it lies in the source folder, and
neither the command line that failed nor the template instantiations and includes that led there."""

import os
import re

_DIAGNOSTIC = re.compile(r"(?P<path>[^\s:][^:]*):\d+(?::\d+)?: (?:fatal error|error|warning|note): ")
_CONTEXT = re.compile(
    r".*: (?:In|At) .*:$|.*:   +required |In file included from |\s+from .*[:,]$|.* recursively required"
)


class Diagnostics:
    """Of one build. Takes its output line by line."""

    def __init__(self, root):
        self._root = str(root) + os.sep
        self._seen = set()
        self._dropping = False  # what belongs to a diagnostic that was shown before
        self._command_follows = False

    def shown(self, line):
        """What to show of the line; empty for nothing."""
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
