"""The Markdown pages: the front page and the layers' READMEs stay short, and every link leads somewhere."""

import re
from pathlib import Path

from cli import docs

ROOT = Path(__file__).resolve().parents[2]
PAGES = docs.pages(ROOT)
MOST_WORDS = 900  # without generated text: ./ladder table writes a row for each pass that has a record
MOST_WORDS_OF_A_LAYER = 2100  # the generated tables included

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_GENERATED = re.compile(r"<!-- (\w+):begin .*?<!-- \1:end -->", re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page):
    """Returns the anchors that GitHub makes of the headings."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page):
    """Relative links of `page` to a missing file or heading."""
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            yield f"{page.relative_to(ROOT)}: {link}"


def words(text):
    """Returns the number of words, not counting bars, daggers and the like."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def test_the_front_page_is_short():
    assert words(_GENERATED.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))) <= MOST_WORDS


def test_a_layers_readme_is_short():
    pages = [page for page in PAGES if page.name == "README.md" and page.parent != ROOT]
    counts = {str(page.relative_to(ROOT)): words(page.read_text(encoding="utf-8")) for page in pages}
    assert {page: count for page, count in counts.items() if count > MOST_WORDS_OF_A_LAYER} == {}


def test_every_relative_link_leads_somewhere():
    assert ROOT / "README.md" in PAGES
    assert [link for page in PAGES for link in broken(page)] == []
