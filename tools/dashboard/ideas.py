"""What each version changed, in the words of its file's header comment, and the names that shapes.txt gives the problems."""

from registry import listing


def of_ladder(root, path):
    """{version: {"idea": ..., "parent": ..., "why": ..., "needs": ...}} of dev/<path>; one whose file is gone has no
    entry."""
    return {version.number: version.header for version in listing.versions(root, path)}


def shapes(root, layer):
    """{set: {problem without its dtype: name}} of the layer's shapes.txt."""
    return {
        name: {problem: label for label, problem in cases.items()} for name, cases in listing.sets(root, layer).items()
    }
