"""The dashboard in a real Chromium without a window: what loads, what filters and links do, what records' words do."""

import contextlib
import io
import json
import random
import shutil
import site
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import dashboard_records  # noqa: E402
from cli import tools  # noqa: E402
from compare.records import compare  # noqa: E402
from dashboard import main, model, sources  # noqa: E402

for folder in tools.VENV.glob("lib/python3*/site-packages"):
    site.addsitedir(str(folder))
try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError:
    webdriver = None

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
LACKS = "" if webdriver and BROWSER and DRIVER else "needs a browser: ./ladder setup --dev"

# A page of the promised size must be there within this many milliseconds; on two cores of a server it takes a third.
MOST_MILLISECONDS = 5000

V02_TOP = "toy/fprop|2|n32 h64 w64 c64 k64 bf16"


def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1400,1000",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def make_page(root):
    with contextlib.redirect_stderr(io.StringIO()):
        main.main(["--root", str(root)])
    return Path(root) / "results" / "index.html"


@unittest.skipIf(LACKS, LACKS)
class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = browser()
        cls.addClassCleanup(cls.driver.quit)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = dashboard_records.tree(Path(folder.name), 10)
        (cls.root / "results" / "h200" / "profiles").mkdir()
        for version in (2, 3):
            profile = {**dashboard_records.PROFILE, "version": version, "idea": dashboard_records.IDEAS[version]}
            (cls.root / "results" / "h200" / "profiles" / f"v{version}.json").write_text(json.dumps(profile))
        cls.page = make_page(cls.root)

    def setUp(self):
        self.emulate()

    def emulate(self, media="", colours="light"):
        """Smooth scrolling would move what is about to be clicked."""
        features = {"prefers-reduced-motion": "reduce", "prefers-color-scheme": colours}
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"media": media, "features": [{"name": name, "value": value} for name, value in features.items()]},
        )

    def open(self, fragment="", file=None, drawn=True):
        self.driver.get("about:blank")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(f"file://{file or self.page}{fragment}")
        if drawn:
            WebDriverWait(self.driver, 20).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, "[data-drawn]"))

    def settle(self):
        """Until what the address asks for is drawn: the browser tells the page of a new address a moment later."""
        WebDriverWait(self.driver, 5, 0.02).until(
            lambda driver: driver.execute_script(
                "const {shown} = document.body.dataset; return shown === undefined || shown === location.hash"
            )
        )

    def all(self, selector):
        self.settle()
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        (element,) = self.all(selector)
        return element

    def rows(self, column=None):
        """Visible rows of the table of results, or one column of them."""
        self.settle()
        return self.driver.execute_script(
            "return [...document.querySelectorAll('#table tbody tr')].filter((row) => !row.hidden)"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))"
            + (f".map((row) => row[{column}])" if column is not None else "")
        )

    def choose(self, name, value):
        Select(self.one(f"#filters [name={name}]")).select_by_value(value)

    def hash(self):
        self.settle()
        return self.driver.execute_script("return location.hash")

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


class Loading(Browser):
    def test_no_error_and_nothing_but_the_file(self):
        self.open()
        self.choose("dtype", "bf16")
        self.one("#theme").click()
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]
        self.assertIn(f"file://{self.page}", asked)  # so requests are seen at all
        self.assertEqual([url for url in asked if not url.startswith((f"file://{self.page}", "data:", "about:"))], [])
        self.assertEqual(self.errors(), [])

    def test_every_section_is_drawn(self):
        self.open()
        for plot in ("ladder", "history", "ab", "limits"):
            drawn = self.driver.execute_script(
                "const canvas = document.querySelector(arguments[0]);"
                "const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
                "return data.some((value) => value)",
                f"#{plot}-plot canvas",
            )
            self.assertTrue(drawn, plot)
        self.assertEqual(self.one(".tile.slow b").text, "1")
        self.assertIn("became slower", self.one("h1").text)
        self.assertIn("+8", self.one("#called").text)
        self.assertIn("× 2", self.one("#rungs").text)
        self.assertIn("61", self.one("#rungs").text)
        self.assertIn("× 1.20", self.one("#accuracy-table").text)
        self.assertIn("fp32 has no tensor cores", self.one("#accuracy-table").text)
        self.assertIn("long scoreboard 42 %", self.one("#profile-panel").text)
        self.assertEqual(self.one("#profile-panel").text.count("16.3 µs"), 4)
        self.assertIn("99.0 KiB 99.0 KiB × 1.00", self.one("#profile-panel").text)

    def test_what_was_packed_comes_out(self):
        data = model.build(self.root, *sources.read(self.root), compare)
        self.open()
        unpacked = self.driver.execute_script(
            "return ladder.series.map((one) => [one.history, one.samples.map((side) => "
            "[Array.from(side.seconds), Array.from(side.clocks)])])"
        )
        self.assertEqual(len(unpacked), len(data["series"]))
        for (points, samples), expected, sides in zip(unpacked, data["histories"], data["samples"]):
            self.assertEqual(len(points), len(expected))
            for point, (record, *times, code) in zip(points, expected):
                self.assertEqual((point["record"], point["status"]), (record, code))
                for name, time in zip(("median", "low", "high", "baseline"), times):
                    if time is None:
                        self.assertIsNone(point[name])
                    else:
                        self.assertLess(abs(point[name] / time - 1), 0.0005 if name in ("low", "high") else 0.00025)
            self.assertEqual([len(side) for side, _ in samples], [len(side) for side, _ in sides])
            for (seconds, clocks), (true_seconds, true_clocks) in zip(samples, sides):
                for value, true in zip(seconds + clocks, true_seconds + true_clocks):
                    self.assertLess(abs(value / true - 1), 1e-7)

    def test_without_scripts_there_is_the_table(self):
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            self.open(drawn=False)
            shown = [row for row in self.all("#table tbody tr") if row.is_displayed()]
            self.assertEqual(len(shown), 9)
            self.assertIn("toy/fprop v03 wgmma", shown[0].text)
            self.assertTrue(self.one("noscript p").is_displayed())
            self.assertFalse(self.one("#filters").is_displayed())
            self.assertFalse(self.one("#kernel").is_displayed())
            self.assertEqual(self.one(".tile.slow b").text, "1")
        finally:
            self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    def test_500_series_by_500_records(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "large.html"
            file.write_text(dashboard_records.large_page(), encoding="utf-8")
            self.open(file=file)
            self.assertLess(int(self.one("body").get_attribute("data-drawn")), MOST_MILLISECONDS)
            self.assertEqual(len(self.rows()), 500)
            self.assertEqual(self.driver.execute_script("return ladder.series[499].history.length"), 500)
            self.assertEqual(self.errors(), [])

    def test_an_empty_page(self):
        with tempfile.TemporaryDirectory() as folder:
            dashboard_records.tree(folder, 0)
            self.open(file=make_page(folder), drawn=False)
            self.assertIn("./ladder record", self.one(".empty").text)
            self.assertFalse(self.one("#results").is_displayed())
            self.assertEqual(self.errors(), [])

    def test_its_picture(self):
        png = self.root / "page.png"
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(main.main(["--root", str(self.root), "--picture", str(png)]), 0)
        self.assertEqual(png.read_bytes()[:4], b"\x89PNG")


class Using(Browser):
    def test_filters(self):
        self.open()
        self.assertEqual(len(self.rows()), 9)
        self.choose("dtype", "fp32")
        self.assertEqual(set(self.rows(2)), {"fp32"})
        self.assertEqual(len(self.rows()), 3)
        self.choose("version", "2")
        self.assertEqual(len(self.rows()), 1)
        self.assertIn("dtype=fp32", self.hash())
        self.one("#clear").click()
        self.assertEqual(len(self.rows()), 9)
        self.choose("shape", "set:unet")
        self.assertEqual(len(self.rows()), 9)
        self.choose("shape", "n32 h64 w64 c64 k64")
        self.assertEqual(set(self.rows(1)), {"n32 h64 w64 c64 k64"})

    def test_the_headline_is_about_what_is_shown(self):
        self.open()
        self.assertEqual(self.one("h1").text, "1 kernel became slower on 2026-01-10.")
        self.choose("dtype", "fp32")
        self.assertEqual(self.one("h1").text, "No kernel became slower on 2026-01-10.")
        self.assertEqual(self.one(".tile.slow b").text, "0")

    def test_a_link_restores_what_was_seen(self):
        self.open()
        self.choose("dtype", "bf16")
        self.all("#heat a")[1].click()
        self.all("#table thead button")[3].click()
        seen = self.hash(), self.rows(), self.one("#kernel-head").text, self.one("#heat").text
        self.assertIn("kernel=", seen[0])
        self.open(seen[0])
        self.assertEqual((self.hash(), self.rows(), self.one("#kernel-head").text, self.one("#heat").text), seen)

    def test_a_link_to_a_kernel(self):
        self.open("#kernel=" + V02_TOP.replace(" ", "+"))
        self.assertIn("toy/fprop v02 tiled", self.one("#kernel-head").text)
        self.assertIn("Step at 0000005", self.one("#history-notes").text)
        self.assertIn("driver 13.0 → 13.1", self.one("#history-notes").text)
        self.assertIn("+30", self.one("#history-notes").text)

    def test_back_undoes_a_click(self):
        self.open()
        before = self.one("#kernel-head").text
        self.all("#heat a")[0].click()
        self.assertNotEqual(self.one("#kernel-head").text, before)
        self.driver.back()
        WebDriverWait(self.driver, 5).until(lambda _: self.one("#kernel-head").text == before)

    def test_a_stale_link_shows_something(self):
        for fragment, rows in (
            ("#kernel=gone|99|n1&dtype=fp8&sort=77:up&at=nowhere&left=x", 0),
            ("#device=none&rows=shapes", 0),
            ("#=&&%", 9),
        ):
            self.open(fragment)
            self.assertEqual(len(self.rows()), rows)
            self.assertEqual(self.errors(), [])

    def test_the_table_is_sorted(self):
        self.open()
        button = self.all("#table thead button")[3]
        button.click()
        times = [float(text) for text in self.rows(3) if text]
        self.assertEqual(times, sorted(times))
        self.assertEqual(self.rows(3)[-1], "")  # what has no time is last
        self.assertEqual(self.all("#table thead th")[3].get_attribute("aria-sort"), "ascending")
        self.all("#table thead button")[3].click()
        self.assertEqual([float(text) for text in self.rows(3) if text], sorted(times, reverse=True))
        self.assertEqual(self.rows(3)[-1], "")
        self.all("#table thead button")[0].click()
        self.assertEqual(self.rows(0), sorted(self.rows(0)))

    def test_the_reproducer_is_copied(self):
        self.open("#kernel=" + V02_TOP.replace(" ", "+"))
        self.driver.execute_cdp_cmd(
            "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
        )
        self.one("#copy").click()
        WebDriverWait(self.driver, 5).until(lambda _: self.one("#said").text == "Copied")
        copied = self.driver.execute_async_script(
            "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))"
        )
        self.assertEqual(copied, "build/cuda/bench_toy --version 2 --problem 'n32 h64 w64 c64 k64 bf16'")

    def test_downloads_hold_what_is_shown(self):
        self.open("#dtype=fp32")
        self.driver.execute_script(
            "window.saved = []; const make = URL.createObjectURL;"
            "URL.createObjectURL = (blob) => { saved.push(blob.text()); return make(blob); };"
        )
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "deny"})
        self.one("#csv").click()
        self.one("#json").click()
        csv, listed = self.driver.execute_async_script("Promise.all(saved).then(arguments[0])")
        self.assertEqual(len(csv.strip().split("\r\n")), 4)
        self.assertEqual([entry["version"] for entry in json.loads(listed)], [3, 2, 1])
        self.assertEqual(json.loads(listed)[0]["status"], "SKIP")

    def test_dark_and_light(self):
        paper = "return getComputedStyle(document.body).backgroundColor"
        self.emulate(colours="dark")
        self.open()
        self.assertEqual(self.driver.execute_script(paper), "rgb(20, 22, 26)")
        self.one("#theme").click()
        self.assertEqual(self.driver.execute_script(paper), "rgb(251, 250, 247)")
        self.open()  # the choice is kept
        self.assertEqual(self.driver.execute_script(paper), "rgb(251, 250, 247)")
        self.driver.execute_script("localStorage.clear()")

    def test_the_keyboard_is_enough(self):
        self.open()
        self.driver.execute_script("document.querySelector('#heat a').focus()")
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.assertIn("kernel=", self.hash())
        self.driver.execute_script("document.querySelector('#table thead button').focus()")
        self.driver.switch_to.active_element.send_keys(Keys.SPACE)
        self.assertIn("sort=0", self.hash())
        self.open()
        reached = set()
        for _ in range(25):
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
            reached.add(self.driver.switch_to.active_element.get_attribute("name") or "")
        self.assertLessEqual({"path", "dtype", "shape", "version"}, reached)

    def test_cells_say_without_colour(self):
        self.open()
        labels = [cell.get_attribute("aria-label") for cell in self.all("#heat a")]
        self.assertTrue(all("times the library's speed" in label for label in labels), labels)
        self.assertTrue(all(cell.text.strip() for cell in self.all("#heat a")))

    def test_on_paper_there_are_no_controls(self):
        self.open()
        self.emulate(media="print")
        self.assertFalse(self.one("#filters").is_displayed())
        self.assertTrue(self.one("#table").is_displayed())


class MemoryBound(Browser):
    """A ladder that waits for memory beside one that waits for arithmetic."""

    V02_TOP = f"#kernel={dashboard_records.NORM}|2|n32+h64+w64+c64+g32+silu+bf16"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        root = dashboard_records.with_norm(dashboard_records.tree(folder.name, 3))
        (root / "dev" / "toy" / "shapes.txt").write_text("[unet]\nlow: n32 h8 w8 c256 k256\ntop: n32 h64 w64 c64 k64\n")
        cls.both = make_page(root)

    def page_of(self, count=3, **more):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return make_page(dashboard_records.with_norm(dashboard_records.tree(folder.name, count), **more))

    def heads(self):
        self.settle()
        return self.driver.execute_script(
            "return [...document.querySelectorAll('#table thead th')]"
            ".filter((head) => !head.hidden).map((head) => head.textContent)"
        )

    def datasets(self):
        self.settle()
        made = self.driver.execute_script(
            "return Chart.getChart(document.querySelector('#limits-plot canvas')).data.datasets.map("
            "(set) => [set.label, set.data.map(({x, y, word}) => [x, y, word])])"
        )
        return [(label, points) for label, points in made]

    def labels_of_limits(self):
        return self.driver.execute_script(
            "const chart = Chart.getChart(document.querySelector('#limits-plot canvas'));"
            "const {label} = chart.options.plugins.tooltip.callbacks;"
            "return chart.data.datasets.flatMap((set) => set.data).filter((raw) => raw.series).map("
            "(raw) => label({raw, parsed: raw}))"
        )

    def test_the_kernel_is_told_in_bytes(self):
        self.open(self.V02_TOP, file=self.both)
        facts = self.one("#kernel-head .facts").text
        self.assertRegex(facts, r"rate\n30[67]\d GB/s\n75 % of a copy's 4100 GB/s")
        self.assertIn("of what a streaming kernel takes\n88 %\na kernel that only moves them: 9.60 µs", facts)
        self.assertNotIn("TFLOP", facts)
        self.assertIn(f"{dashboard_records.PYTORCH}\n16.8 µs\ntorch.compile channels_last", facts)
        self.assertIn("we are faster", facts)
        self.open(self.V02_TOP.replace("|2|", "|1|"), file=self.both)
        self.assertIn("PyTorch 2.11.0 is faster", self.one("#kernel-head .facts").text)
        self.open("#kernel=" + V02_TOP.replace(" ", "+"), file=self.both)
        self.assertIn("TFLOP/s", self.one("#kernel-head .facts").text)
        self.assertIn("cuDNN 9.19.0 is faster", self.one("#kernel-head .facts").text)
        self.assertNotIn("GB/s", self.one("#kernel-head .facts").text)
        self.assertEqual(self.errors(), [])

    def test_the_steps_are_told_in_bytes(self):
        self.open(self.V02_TOP, file=self.both)
        self.assertIn("beats the best plan of PyTorch 2.11.0.", self.one("#ladder-lead").text)
        heads = [head.text for head in self.all("#rungs thead th")]
        self.assertEqual(heads[4:8], ["GB/s", "of copy", "of a streaming kernel", "step"])
        self.assertRegex(self.all("#rungs tbody tr")[1].text, r"30[67]\d 75 % 88 % × 3\.")
        self.open("#path=toy/fprop", file=self.both)
        self.assertEqual([head.text for head in self.all("#rungs thead th")][4:6], ["TFLOP/s", "step"])

    def test_the_picture_is_bandwidth_against_size(self):
        self.open(self.V02_TOP, file=self.both)
        drawn = dict(self.datasets())
        self.assertEqual([round(x, 1) for x, _, _ in drawn["v02 one pass"]], [2.1, 6.3, 33.6])
        for _, rate, _ in drawn["v02 one pass"]:
            self.assertAlmostEqual(rate, 3075, delta=6)
        self.assertEqual([word for _, _, word in drawn["v02 one pass"]], [None, None, "v02"])
        self.assertEqual({rate for _, rate, _ in drawn["copy bandwidth, measured"]}, {4100})
        self.assertEqual([round(rate / 100) for _, rate, _ in drawn["streaming kernel"]], [35, 35, 35])
        self.assertEqual(len(drawn["PyTorch 2.11.0"]), 3)
        bound = drawn["with an empty kernel's time on top"]
        for size, rate, _ in bound:
            self.assertAlmostEqual(rate, size / (3e-6 + size / 4.1e6) / 1e3, delta=1)
        self.assertLess(bound[0][1], 350)  # a megabyte goes by in less than an empty kernel's time
        self.assertIn("v02 n32 h64 w64 c64 g32 silu: 3", "".join(self.labels_of_limits()))
        said = [label for label in self.labels_of_limits() if "h64" in label]
        self.assertTrue(any("GB/s, 75 % of a copy, 88 % of a streaming kernel" in label for label in said), said)
        self.assertTrue(any(label.startswith(dashboard_records.PYTORCH) for label in said), said)
        self.assertIn("waits for memory", self.one("#limits-lead").text)
        legend = self.one("#limits-legend").text
        self.assertIn("Copy bandwidth, measured by the timer's calibration: 4100 GB/s", legend)
        self.assertIn("An empty kernel takes 3.00 µs", legend)
        self.open("#path=toy/fprop", file=self.both)
        self.assertIn("memory, measured", dict(self.datasets()))
        self.assertIn("TFLOP/s", self.labels_of_limits()[0])

    def test_the_table_shows_the_rates_that_it_has(self):
        self.open(file=self.both)
        rates = ["TFLOP/s", "GB/s", "copy, %", "streaming, %"]
        self.assertEqual([head for head in self.heads() if head in rates], rates)
        self.choose("path", dashboard_records.NORM)
        self.assertEqual([head for head in self.heads() if head in rates], rates[1:])
        shown = self.driver.execute_script(
            "return [...document.querySelectorAll('#table tbody tr')].filter("
            "(row) => !row.hidden).map((row) => [...row.cells].filter("
            "(cell) => !cell.hidden).length)"
        )
        self.assertEqual(shown, [len(self.heads())] * 6)
        self.choose("path", "toy/fprop")
        self.assertEqual([head for head in self.heads() if head in rates], rates[:1])

    def test_downloads_hold_the_bytes(self):
        self.open(f"#path={dashboard_records.NORM}", file=self.both)
        self.driver.execute_script(
            "window.saved = []; const make = URL.createObjectURL;"
            "URL.createObjectURL = (blob) => { saved.push(blob.text()); return make(blob); };"
        )
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "deny"})
        self.one("#json").click()
        (text,) = self.driver.execute_async_script("Promise.all(saved).then(arguments[0])")
        entry = next(entry for entry in json.loads(text) if entry["problem"].startswith("n32 h64"))
        self.assertEqual(
            [entry[name] for name in ("bytes", "copy_bytes_per_s", "streaming_seconds")], [33.6e6, 4.1e12, 9.6e-6]
        )

    def test_words_of_another_layer(self):
        """Sets, names and the order of shapes come from the layer's own shapes.txt."""
        self.open("#shape=set:unet&rows=shapes&path=" + dashboard_records.NORM, file=self.both)
        self.assertEqual(len(self.rows()), 6)
        self.assertEqual([row.text.split()[0] for row in self.all("#heat tbody th")], ["bottom", "middle", "top"])
        self.open(file=self.both)
        shapes = [option.text for option in self.all("#filters [name=shape] option")]
        self.assertEqual(
            shapes[2:],
            [
                "bottom n32 h8 w8 c256 g32 silu",
                "middle n32 h16 w16 c192 g32",
                "top n32 h64 w64 c64 g32 silu",
                "low n32 h8 w8 c256 k256",
                "top n32 h64 w64 c64 k64",
            ],
        )
        labels = {cell.get_attribute("aria-label").split(",")[1] for cell in self.all("#heat a")}
        self.assertEqual({label.split("(")[1] for label in labels}, {"PyTorch 2.11.0)", "cuDNN 9.19.0)"})

    def test_of_several_libraries_the_one_whose_plan_won(self):
        times = dashboard_records.times(16e-6, random.Random(1))
        times.update(warm_seconds=None)
        times["warm_samples"] = {name: [] for name in times["warm_samples"]}  # PyTorch's own timer is cold only
        for libraries, plan, name in (
            ("cuDNN 9.19.0, PyTorch 2.11.0", "PyTorch compile nhwc", "PyTorch 2.11.0"),
            ("PyTorch 2.11.0, cuDNN 9.19.0", "eng4_k2=1 nhwc", "cuDNN 9.19.0"),
        ):
            baseline = {
                "library": libraries,
                "best_plan": plan,
                "heuristic_plan": plan,
                "verdict": None,
                "times": times,
                "heuristic_times": None,
            }
            self.open(self.V02_TOP, file=self.page_of(count=1, baseline=baseline))
            self.assertIn(f"beats the best plan of {name}.", self.one("#ladder-lead").text)
            self.assertIn(f"({name})", self.all("#heat a")[0].get_attribute("aria-label"))
            bars = self.driver.execute_script(
                "return Chart.getChart(document.querySelector('#ladder-plot canvas')).data.datasets"
                ".map((set) => set.label)"
            )
            self.assertEqual(bars, ["cold"])
            self.assertEqual(self.errors(), [])

    def test_a_look_is_first_at_arithmetic(self):
        """3000 GB/s are no more than 500 TFLOP/s."""
        self.open(file=self.page_of(count=1))
        self.assertIn("toy/fprop", self.one("#kernel-head").text)

    def test_the_profile_to_make_is_of_the_kernel_in_sight(self):
        self.open(self.V02_TOP, file=self.both)
        self.assertIn("./ladder profile groupnorm/forward --version 2", self.one("#profile-panel").text)

    def test_an_older_record_has_no_time_of_moving_its_bytes(self):
        self.open(self.V02_TOP, file=self.page_of(streaming=None))
        self.assertIn("75 % of a copy's", self.one("#kernel-head .facts").text)
        self.assertNotIn("streaming kernel", self.one("#kernel-head .facts").text)
        self.assertEqual([head.text for head in self.all("#rungs thead th")][4:7], ["GB/s", "of copy", "step"])
        self.assertNotIn("streaming kernel", dict(self.datasets()))
        self.assertNotIn("a streaming kernel", "".join(self.labels_of_limits()))
        self.assertEqual(self.errors(), [])

    def test_without_a_baseline_it_stands_beside_a_copy(self):
        nobody = {"library": None, "reason": "there is none"}
        self.open(self.V02_TOP, file=self.page_of(baseline=nobody))
        cells = [cell.text for cell in self.all("#heat a") if "copy" in cell.text]
        self.assertEqual(cells, ["25 % of copy", "75 % of copy"])
        self.assertIn("share of the copy bandwidth", self.one("#ladder-plot canvas").get_attribute("aria-label"))
        self.assertEqual(self.errors(), [])


class OtherRecords(Browser):
    def page_of(self, change):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = dashboard_records.tree(folder.name, 3)
        change(sorted((root / "results" / "h200").glob("*.json")))
        return make_page(root)

    def test_without_a_baseline(self):
        def change(files):
            for day, file in enumerate(files):
                rng = random.Random(day)
                raw = dashboard_records.record(
                    f"2026-01-0{day + 1}T00:00:00Z",
                    "ab" * 20,
                    [
                        dashboard_records.result(
                            version, dashboard_records.PROBLEMS[0], 3e-5 / version, rng, baseline=None
                        )
                        for version in (1, 2)
                    ],
                )
                dashboard_records.write(files[0].parents[2], file.name, raw)

        self.open(file=self.page_of(change))
        self.assertEqual([cell.text for cell in self.all("#heat a")], ["30 % of limit", "60 % of limit"])
        self.assertIn("share of the card's limit", self.one("#ladder-plot canvas").get_attribute("aria-label"))
        self.assertEqual(self.errors(), [])

    def test_a_figure_over_few_shapes_says_so(self):
        def change(files):
            for day, file in enumerate(files):
                rng, (first, second, _) = random.Random(day), dashboard_records.PROBLEMS
                results = [
                    dashboard_records.result(version, problem, 3e-5 / version, rng)
                    for version, problem in ((1, first), (1, second), (2, first))
                ]
                raw = dashboard_records.record(f"2026-01-0{day + 1}T00:00:00Z", "ab" * 20, results)
                dashboard_records.write(files[0].parents[2], file.name, raw)

        page = self.page_of(change)
        self.open(file=page)
        cells = self.all("#heat a")
        self.assertEqual([cell.text.split()[1:] for cell in cells], [[], ["1", "of", "2"]])
        self.assertIn("over 1 of 2 shapes", cells[1].get_attribute("aria-label"))
        self.open("#rows=shapes&path=toy/fprop", file=page)
        self.assertEqual([len(cell.text.split()) for cell in self.all("#heat a")], [1, 1, 1])
        self.assertEqual(self.errors(), [])

    def test_two_devices_are_never_in_one_table(self):
        def change(files):
            root = files[0].parents[2]
            raw = dashboard_records.of_day(2, 3)
            raw["environment"]["device"].update(name="NVIDIA A100", slug="a100")
            dashboard_records.write(
                root, "2026-03-01_abc.json", {**raw, "created": "2026-03-01T00:00:00Z"}, device="a100"
            )

        self.open(file=self.page_of(change))
        self.assertIn("Nothing to compare yet", self.one("h1").text)  # the newest record's device is shown first
        self.assertEqual(len(self.rows()), 9)
        self.choose("device", "h200")
        self.assertEqual(self.one("h1").text, "1 kernel became slower on 2026-01-03.")
        self.assertEqual(len(self.rows()), 9)
        self.assertEqual(len([line for line in self.all(".dateline[data-device]") if line.is_displayed()]), 1)

    def test_a_truncated_record_is_named_and_not_drawn(self):
        self.check(lambda files: files[-1].write_text(files[-1].read_text()[:3000]), "not a record")

    def test_a_tampered_record_is_named_and_not_drawn(self):
        self.check(lambda files: files[-1].write_text(files[-1].read_text().replace('"naive"', '"faster"')), "checksum")

    def check(self, change, reason):
        self.open(file=self.page_of(change))
        self.assertTrue(self.one("#bad").is_displayed())
        self.assertIn("2026-01-03_0000002.json", self.one("#bad").text)
        self.assertIn(reason, self.one("#bad").text)
        self.assertEqual(self.driver.execute_script("return ladder.records.length"), 2)
        longest = self.driver.execute_script("return Math.max(...ladder.series.map((one) => one.history.length))")
        self.assertEqual(longest, 2)
        self.assertNotIn("faster", self.one("#rungs").text)

    def test_failures_have_a_border_and_a_sign(self):
        def change(files):
            raw = dashboard_records.of_day(2, 3)
            raw["results"][0] = dashboard_records.result(
                1, dashboard_records.PROBLEMS[0], 0, random.Random(1), status="FAIL", reason="3 of 9 elements differ"
            )
            dashboard_records.write(files[0].parents[2], files[-1].name, raw)

        self.open(file=self.page_of(change))
        cell = self.one("#heat a.failed")
        self.assertIn("✕", cell.text)
        cell.click()
        self.assertIn("3 of 9 elements differ", self.one("#kernel-head").text)

    def test_words_of_a_record_are_never_markup(self):
        evil = '"\'><img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>{{data}}'

        def change(files):
            root = files[0].parents[2]
            for day, file in enumerate(files):
                results = [
                    dashboard_records.result(
                        version,
                        f"n1 {evil} bf16",
                        1e-5,
                        random.Random(day),
                        idea=evil,
                        command=evil,
                        status=status,
                        reason=evil,
                    )
                    for version, status in ((1, "PASS"), (2, "FAIL"), (3, "SKIP"))
                ]
                for made in results:
                    made["baseline"].update(library=evil if made["baseline"]["library"] else None, best_plan=evil)
                raw = dashboard_records.record(
                    f"2026-01-0{day + 1}T00:00:00Z{evil}", evil, results, driver=evil + str(day)
                )
                raw["environment"]["device"]["name"] = evil
                raw["calibration"]["failure"] = evil
                dashboard_records.write(root, file.name, raw)
            (root / "dev" / "toy" / "fprop" / "v01_naive.cu").write_text(f"// Idea: {evil}\n// Why: {evil}\n")
            (root / "dev" / "toy" / "shapes.txt").write_text(f"[{evil}]\n{evil.replace(':', '')}: n1 {evil}\n")
            profiles = root / "results" / "h200" / "profiles"
            profiles.mkdir()
            kernel = {
                **dashboard_records.PROFILE["kernels"][0],
                "name": evil,
                "stalls": [{"reason": evil, "share": 0.5}],
            }
            (profiles / "a.json").write_text(
                json.dumps(
                    {
                        **dashboard_records.PROFILE,
                        "advice": [evil],
                        "ncu": evil,
                        "total": {evil: {"value": 1, "unit": evil, "text": evil}},
                        "kernels": [kernel],
                        "problem": evil,
                    }
                )
            )
            (files[0].parent / "bad.json").write_text(json.dumps({"schema": "ladder.record/" + evil}))

        file = self.page_of(change)
        self.open(file=file)
        self.open("#rows=shapes", file=file)
        for at in range(len(self.all("#heat a"))):  # each click draws them anew
            self.driver.execute_script("arguments[0].click()", self.all("#heat a")[at])
        for summary in self.all("summary"):
            self.driver.execute_script("arguments[0].click()", summary)
        self.assertIsNone(self.driver.execute_script("return window.hacked ?? null"))
        self.assertEqual(self.all("img"), [])
        self.assertIn(evil, self.one("#bad").text)
        self.assertIn(evil, self.one("#rungs").text)
        self.assertIn(evil, self.one("#profile-panel").text)
        self.assertIn(evil, self.one("#reproducer").text)
        self.assertEqual(self.errors(), [])


if __name__ == "__main__":
    unittest.main()
