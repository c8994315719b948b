"""A real Chromium for tests of pages: Debian's ``chromium`` with ``chromium-driver``, or those that CHROMIUM and CHROMEDRIVER
name. Nothing is downloaded; where there is none, or no selenium, tests that need it are skipped and say so."""

import base64
import json
import os
import shutil
from contextlib import contextmanager

import pytest


@contextmanager
def chromium(directory, width=1280, height=900):
    """A headless browser whose user data is below ``directory`` and that can resolve no name but this machine's."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("no chromium with chromedriver here (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        f"--user-data-dir={directory}", f"--window-size={width},{height}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    session = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    session.set_page_load_timeout(60)
    session.set_script_timeout(60)
    session.get("about:blank")
    requests_of(session), complaints_of(session)  # those of the browser's first page
    try:
        yield session
    finally:
        session.quit()


def requests_of(session) -> list[str]:
    """The addresses asked for since the last call, data: and blob: among them."""
    urls = []
    for entry in session.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            params = message["params"]
            urls.append(params["request"]["url"] if "request" in params else params["url"])
    return urls


def complaints_of(session) -> list[str]:
    """What the browser wrote to its console since the last call: errors of scripts, and what the policy refused."""
    return [entry["message"] for entry in session.get_log("browser")]


def set_theme(session, dark: bool) -> None:
    """What the system's theme is to the page; pages scroll at once, as with reduced motion."""
    session.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {
            "features": [
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ]
        },
    )


def set_width(session, width: int, height: int = 900) -> None:
    session.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def picture(session, path, full: bool = True) -> None:
    """A PNG of the page, of all of it or of what is in view."""
    shot = session.execute_cdp_cmd(
        "Page.captureScreenshot",
        {"captureBeyondViewport": full, "format": "png"}
        | (
            {"clip": {**session.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"], "scale": 1}}
            if full
            else {}
        ),
    )
    path.write_bytes(base64.b64decode(shot["data"]))
