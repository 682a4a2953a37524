"""A real browser for tests of the report page: headless Chromium, driven by Selenium."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@cache
def find_browser() -> tuple[str, str]:
    """Find the browser and its driver; installs Debian's packages if possible."""
    found = _look()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "chromium", "chromium-driver"]):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(["apt-get", *command], env=environment, capture_output=True, timeout=600, check=False)
        found = _look()
    if found is None:
        raise FileNotFoundError("there is no Chromium with its driver here: apt-get install chromium chromium-driver")
    return found


def _look() -> tuple[str, str] | None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


@contextlib.contextmanager
def opened_browser(profile: Path) -> Iterator[Any]:
    """A driver with an empty profile that keeps the console's messages."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    browser, driver = find_browser()
    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    page = Chrome(options=options, service=Service(driver))
    try:
        page.set_page_load_timeout(120)
        page.set_script_timeout(120)
        yield page
    finally:
        page.quit()


def set_width(page: Any, width: int, height: int = 900) -> None:
    """Give the page a width in CSS pixels, whatever the window's own limits are."""
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )


def set_scheme(page: Any, scheme: str) -> None:
    """Emulate a preference for light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def load(page: Any, path: Path) -> None:
    """Open a report from disk and wait until all of it is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    page.get(path.as_uri())
    ready = "return document.documentElement.dataset.ready === 'yes'"
    WebDriverWait(page, 60, poll_frequency=0.02).until(lambda driver: driver.execute_script(ready))


def seconds(page: Any, action: Callable[[], Any]) -> float:
    """Return the processor seconds that the page takes for an action: others may be using the machine."""
    page.execute_cdp_cmd("Performance.enable", {})
    taken = []
    for step in (lambda: None, action):
        step()
        found = page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        taken.append(next(metric["value"] for metric in found if metric["name"] == "ProcessTime"))
    return taken[1] - taken[0]


def problems(page: Any) -> list[str]:
    """Return the console's warnings and errors since the last call."""
    return [entry["message"] for entry in page.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]


def picture(page: Any, selector: str = "body", margin: int = 24) -> bytes:
    """Take a picture (PNG) of an element, or of the whole page."""
    box = page.execute_script(
        "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height}",
        selector,
    )
    left, top = max(0, box["x"] - margin), max(0, box["y"] - margin)
    width, height = box["x"] + box["width"] + margin - left, box["y"] + box["height"] + margin - top
    clip = {"x": left, "y": top, "width": width, "height": height, "scale": 1}
    options = {"captureBeyondViewport": True, "format": "png", "clip": clip}
    return base64.b64decode(page.execute_cdp_cmd("Page.captureScreenshot", options)["data"])
