"""Text between markers of a README, which a tool makes:

    <!-- training:begin budget -->
    <!-- training:end -->
"""

import re

_BLOCK = re.compile(r"(<!-- training:begin (\S+) -->\n)(.*?)(<!-- training:end -->)", re.DOTALL)


def filled(text, name, body):
    """`text` with `body` between every pair of markers with that name."""
    return _BLOCK.sub(lambda match: match[1] + body + match[4] if match[2] == name else match[0], text)
