"""Tables of plain text."""


def aligned(rows, right=()):
    """`rows` of words as lines, columns two spaces apart; those whose indices are in `right` end alike, the others begin alike."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    padded = (
        [word.rjust(width) if at in right else word.ljust(width) for at, (word, width) in enumerate(zip(row, widths))]
        for row in rows
    )
    return ["  ".join(words).rstrip() for words in padded]
