"""Debian's Chromium without a window, driven by Selenium."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

#: How long what a page should show may take, in seconds: machines of tests stand still at times.
PATIENCE = 60.0


class Missing(Exception):
    """There is no browser, and none can be installed."""


def find_programs() -> tuple[str, str]:
    """Find Chromium and its driver; as root of a Debian, install them where they are missing.

    Raises:
        Missing: there is none.
    """
    for _ in range(2):
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        driver = shutil.which("chromedriver")
        if chromium and driver:
            return chromium, driver
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            break
        for command in (
            ["update"],
            ["install", "-y", "--no-install-recommends", "chromium", "chromium-driver"],
        ):
            subprocess.run(
                ["apt-get", "-q", *command],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                timeout=600,
            )
    raise Missing("Chromium is not installed: apt-get install chromium chromium-driver")


class Browser:
    """A browser, as somebody uses it."""

    def __init__(self, chromium: str, driver: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--window-size=1280,900",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(PATIENCE)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def forget(self, url: str) -> None:
        """Forget what pages of a server have kept, and what went wrong on them."""
        self.driver.get(f"{url}/healthz")
        self.run("localStorage.clear(); sessionStorage.clear()")
        self.driver.get_log("browser")

    def open(self, url: str) -> None:
        self.driver.get("about:blank")  # otherwise another part behind # loads nothing anew
        self.driver.get(url)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        """The first element of a selector, as soon as there is one that is seen."""

        def look() -> WebElement | None:
            found = self.driver.find_elements(By.CSS_SELECTOR, selector)
            return next((one for one in found if one.is_displayed()), None)

        return self.wait(look, f"no {selector}")

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def fill(self, selector: str, text: str) -> None:
        """Type into a field, in place of what is there."""
        field = self.find(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text or Keys.DELETE)

    def press(self, label: str) -> None:
        """Press the button of a label."""

        def look() -> WebElement | None:
            found = self.driver.find_elements(By.TAG_NAME, "button")
            return next((b for b in found if b.text == label and b.is_enabled()), None)

        self.wait(look, f'no button "{label}"').click()

    def write(self, text: str, host: str = "#editor") -> None:
        """Type into an editor, in place of what is there."""
        editor = self.editor(host)
        editor.click()
        keys = ActionChains(self.driver)
        keys.key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL)
        keys.send_keys(Keys.DELETE).perform()
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def editor(self, host: str = "#editor") -> WebElement:
        """An editor's text, which is in a root of its own."""
        found = self.find(host)
        return self.wait(
            lambda: found.shadow_root.find_element(By.CSS_SELECTOR, ".cm-content"), "no editor"
        )

    def in_editor(self, selector: str) -> list[WebElement]:
        return self.find("#editor").shadow_root.find_elements(By.CSS_SELECTOR, selector)

    def send(self, *keys: str) -> None:
        """Press keys together."""
        chain = ActionChains(self.driver)
        for key in keys[:-1]:
            chain.key_down(key)
        chain.send_keys(keys[-1])
        for key in keys[:-1]:
            chain.key_up(key)
        chain.perform()

    def sees(self, text: str, selector: str = "body") -> None:
        """Wait until a text is seen."""
        self.wait(lambda: text in self.find(selector).text, f'nothing says "{text}"')

    def wait(self, look: Callable[[], Any], complaint: str) -> Any:
        """Wait until a look finds something; what is drawn anew meanwhile is looked up anew."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if found := look():
                    return found
            except Exception:
                if time.monotonic() > deadline:
                    raise
            assert time.monotonic() < deadline, f"{complaint}: {self.text()}\n{self.complaints()}"
            time.sleep(0.05)

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def complaints(self) -> list[str]:
        """Errors of scripts and refusals of the content security policy, since `forget`.

        A call that the server refuses is none: the page shows its error.
        """
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]
        ]

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Show pages on a screen of a size, light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def save_picture(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))
