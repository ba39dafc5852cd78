"""The dashboard in a browser: broken records, other devices, and what words of records do."""

import json
import random

import pytest

import dashboard_records as made
from browser import Browser, make_page


class OtherRecords(Browser):
    """`tmp_path` is the tree of the page."""

    def __init__(self, driver, tmp_path):
        super().__init__(driver)
        self.root = made.tree(tmp_path, 3)
        self.files = sorted((self.root / "results" / "h200").glob("*.json"))

    def draw(self, fragment=""):
        self.page = make_page(self.root)
        self.open(fragment)


@pytest.fixture
def others(driver, tmp_path):
    return OtherRecords(driver, tmp_path)


def test_without_a_baseline(others):
    for day, file in enumerate(others.files):
        rng = random.Random(day)
        results = [made.result(version, made.PROBLEMS[0], 3e-5 / version, rng, baseline=None) for version in (1, 2)]
        made.write(others.root, file.name, made.record(f"2026-01-0{day + 1}T00:00:00Z", "ab" * 20, results))
    others.draw()
    assert [cell.text.replace("\n", " ") for cell in others.all("#heat a")] == ["30 % of limit", "60 % of limit"]
    assert "share of the card's limit" in others.one("#ladder-plot").get_attribute("aria-label")
    assert others.errors() == []


def test_a_figure_over_few_shapes_says_so(others):
    for day, file in enumerate(others.files):
        rng, (first, second, _) = random.Random(day), made.PROBLEMS
        results = [
            made.result(version, problem, 3e-5 / version, rng)
            for version, problem in ((1, first), (1, second), (2, first))
        ]
        made.write(others.root, file.name, made.record(f"2026-01-0{day + 1}T00:00:00Z", "ab" * 20, results))
    others.draw()
    cells = others.all("#heat a")
    assert [cell.text.split()[1:] for cell in cells] == [[], ["1", "of", "2"]]
    assert "over 1 of 2 shapes" in cells[1].get_attribute("aria-label")
    assert others.errors() == []


def test_two_devices_are_never_in_one_table(others):
    raw = made.of_day(2, 3)
    raw["environment"]["device"].update(name="NVIDIA A100", slug="a100")
    made.write(others.root, "2026-03-01_abc.json", {**raw, "created": "2026-03-01T00:00:00Z"}, device="a100")
    others.draw()
    assert "Nothing to compare yet" in others.text("h1")  # the newest record's device is shown first
    assert len(others.rows()) == 9
    others.choose("device", "h200")
    assert others.text("h1") == "1 kernel became slower on 2026-01-03."
    assert len(others.rows()) == 9
    assert len([line for line in others.all(".dateline[data-device]") if line.is_displayed()]) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [(lambda text: text[:3000], "not a record"), (lambda text: text.replace('"naive"', '"faster"'), "checksum")],
    ids=["truncated", "tampered"],
)
def test_a_broken_record_is_named_and_not_drawn(others, change, reason):
    newest = others.files[-1]
    newest.write_text(change(newest.read_text()))
    others.draw()
    assert others.one("#bad").is_displayed()
    assert "2026-01-03_0000002.json" in others.text("#bad")
    assert reason in others.text("#bad")
    assert others.script("return ladder.records.length") == 2
    assert others.script("return Math.max(...ladder.series.map((one) => points(one.history).length))") == 2
    assert "faster" not in others.text("#rungs")


def test_failures_have_a_border_and_a_sign(others):
    raw, reason = made.of_day(2, 3), "3 of 9 elements differ"
    raw["results"][0] = made.result(1, made.PROBLEMS[0], 0, random.Random(1), status="FAIL", reason=reason)
    made.write(others.root, others.files[-1].name, raw)
    others.draw()
    cell = others.one("#heat a.failed")
    assert "✕" in cell.text
    cell.click()
    assert reason in others.text("#kernel-head")


EVIL = '"\'><img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>{{data}}'


def spoil(root, files):
    """Puts EVIL wherever a record, a profile, a version or a shape has words."""
    words = {"idea": EVIL, "command": EVIL, "reason": EVIL}
    for day, file in enumerate(files):
        results = [
            made.result(version, f"n1 {EVIL} bf16", 1e-5, random.Random(day), status=status, **words)
            for version, status in ((1, "PASS"), (2, "FAIL"), (3, "SKIP"))
        ]
        for result in results:
            result["baseline"].update(library=EVIL if result["baseline"]["library"] else None, best_plan=EVIL)
        raw = made.record(f"2026-01-0{day + 1}T00:00:00Z{EVIL}", EVIL, results, driver=EVIL + str(day))
        raw["environment"]["device"]["name"] = EVIL
        raw["calibration"]["failure"] = EVIL
        made.write(root, file.name, raw)
    (root / "dev" / "toy" / "fprop" / "v01_naive.cu").write_text(f"// Idea: {EVIL}\n// Why: {EVIL}\n")
    (root / "dev" / "toy" / "shapes.txt").write_text(f"[{EVIL}]\n{EVIL.replace(':', '')}: n1 {EVIL}\n")
    profiles = root / "results" / "h200" / "profiles"
    profiles.mkdir()
    kernel = {**made.PROFILE["kernels"][0], "name": EVIL, "stalls": [{"reason": EVIL, "share": 0.5}]}
    total = {EVIL: {"value": 1, "unit": EVIL, "text": EVIL}}
    profile = {**made.PROFILE, "advice": [EVIL], "ncu": EVIL, "total": total, "kernels": [kernel], "problem": EVIL}
    (profiles / "a.json").write_text(json.dumps(profile))
    (files[0].parent / "bad.json").write_text(json.dumps({"schema": "ladder.record/" + EVIL}))


def test_words_of_a_record_are_never_markup(others):
    spoil(others.root, others.files)
    others.draw()
    for at in range(len(others.all("#heat a"))):  # each click draws them anew
        others.script("arguments[0].click()", others.all("#heat a")[at])
    for summary in others.all("summary"):
        others.script("arguments[0].click()", summary)
    assert others.script("return window.hacked ?? null") is None
    assert others.all("img") == []
    for place in ("#bad", "#rungs", "#profiles", "#reproducer"):
        assert EVIL in others.text(place), place
    assert others.errors() == []
