"""A real browser, for tests of pages; without one they are skipped, and say so."""

import shutil
from typing import Any

import pytest

BROWSER, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))

needs_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="no browser is installed: apt-get install chromium chromium-driver"
    ),
]


@pytest.fixture(scope="module")
def driver() -> Any:
    """Start the browser."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    chrome.set_page_load_timeout(60)
    yield chrome
    chrome.quit()


def wait_for(driver: Any, script: str) -> None:
    """Wait until a script returns something true."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 30).until(lambda chrome: chrome.execute_script(script))


def show(driver: Any, *, width: int, scheme: str = "light") -> None:
    """Let the browser be a screen of this width, light or dark."""
    screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 800}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
