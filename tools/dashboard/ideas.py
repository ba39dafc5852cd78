"""Ideas of the versions, from their files' header comments, and names of the problems, from shapes.txt."""

from registry import listing


def of_ladder(root, path):
    """{version: {"idea": ..., "parent": ..., "why": ..., "needs": ...}} of dev/<path>, without deleted versions."""
    return {version.number: version.header for version in listing.versions(root, path)}


def shapes(root, layer):
    """{set: {problem without its dtype: name}} of the layer's shapes.txt."""
    return {
        name: {problem: label for label, problem in cases.items()} for name, cases in listing.sets(root, layer).items()
    }
