"""A page of the dashboard in a real Chromium without a window."""

import contextlib
import io
import shutil
from pathlib import Path

from dashboard import main

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError:
    webdriver = None

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
LACKS = "" if webdriver and BROWSER and DRIVER else "needs a browser: ./ladder setup --dev"

# JavaScript that keeps the texts of downloads in window.saved, as promises.
KEEP_DOWNLOADS = (
    "window.saved = []; const make = URL.createObjectURL;"
    "URL.createObjectURL = (blob) => { saved.push(blob.text()); return make(blob); };"
)


def start():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in "headless=new no-sandbox disable-gpu disable-dev-shm-usage window-size=1400,1000".split():
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def make_page(root):
    with contextlib.redirect_stderr(io.StringIO()):
        main.main(["--root", str(root)])
    return Path(root) / "results" / "index.html"


class Browser:
    def __init__(self, driver, page=None):
        self.driver, self.page = driver, page
        self.script, self.cdp = driver.execute_script, driver.execute_cdp_cmd
        self.emulate()

    def emulate(self, media="", colours="light"):
        """Set the media type and colour scheme. Without motion: scrolling would move click targets."""
        features = {"prefers-reduced-motion": "reduce", "prefers-color-scheme": colours}
        self.cdp(
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
        """Wait until the page shows its address: the browser tells the page of a new address a moment later."""
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
        """Returns the visible rows of the results table, or one column of them."""
        self.settle()
        return self.script(
            "return [...document.querySelectorAll('#table tbody tr')].filter((row) => !row.hidden)"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))"
            + (f".map((row) => row[{column}])" if column is not None else "")
        )

    def choose(self, name, value):
        Select(self.one(f"#filters [name={name}]")).select_by_value(value)

    def hash(self):
        self.settle()
        return self.script("return location.hash")

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def downloads(self, *buttons):
        """Click on `buttons`; returns the contents of the saved files."""
        self.script(KEEP_DOWNLOADS)
        self.cdp("Browser.setDownloadBehavior", {"behavior": "deny"})
        for button in buttons:
            self.one(button).click()
        return self.driver.execute_async_script("Promise.all(saved).then(arguments[0])")

    def wait(self, holds):
        WebDriverWait(self.driver, 5).until(lambda _: holds())

    def text(self, selector):
        return self.one(selector).text
