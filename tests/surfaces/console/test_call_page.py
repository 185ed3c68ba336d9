"""The page of all calls at /docs: what the document says, and calls tried in a browser."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from browser import Browser, By
from people import GRANTED, WORLD, make_token
from served import serve

from millpond.api.access import Access
from millpond.service.pond import Pond


def open_call(browser: Browser, call: str) -> str:
    """Open a call; returns the selector of its part of the page."""
    part = f"[id='{call}']"
    browser.click(f"{part} > summary")
    browser.find(f"{part} form")
    return part


def send(browser: Browser, part: str) -> None:
    browser.find(f"{part} form button.primary").click()


def test_calls_are_tried_with_a_token_behind_a_proxy(
    browser: Browser, pond: Pond, tmp_path: Path
) -> None:
    pond.execute(WORLD)
    tokens = tmp_path / "tokens.json"
    token = make_token(tokens, "alice", "writer", GRANTED)
    with serve(pond, Access.of(tokens=tokens), prefix="/pond") as served:
        browser.forget(f"{served.url}/pond")
        browser.open(f"{served.url}/pond/docs")
        browser.sees("This server asks for a token", "main")
        browser.find("#token").send_keys("not a token\n")
        browser.sees("does not know that token", "main")
        browser.find("#token").send_keys(f"{token}\n")
        browser.sees("/v1/statements", "main")

        part = open_call(browser, "get/v1/caller")
        send(browser, part)
        browser.sees('"owner": "alice"', part)
        assert f"{served.url}/pond/v1/caller" in browser.find(f"{part} .command").text
        assert token not in browser.run("return document.documentElement.outerHTML")

        # The console has the same token, and nothing broke the content policy.
        browser.open(f"{served.url}/pond/#/queries")
        browser.sees("alice · writer", ".connection")
        browser.click(".connection a")
        browser.sees("/v1/statements", "main")
        browser.press("Forget it")
        browser.sees("This server asks for a token", "main")
        assert browser.complaints() == []


def test_a_query_is_registered_invoked_and_followed(browser: Browser, pond: Pond) -> None:
    with serve(pond) as served:
        browser.forget(served.url)
        browser.open(f"{served.url}/docs")
        part = open_call(browser, "post/v1/queries")
        # The body begins as what is required; each shape is opened to see its fields.
        body = browser.find(f"{part} textarea")
        assert json.loads(body.get_attribute("value")) == {"cql": ""}
        browser.click(f"{part} .answers summary")
        browser.sees("options", f"{part} .fields")
        cql = "SELECT DISTINCT carrier FROM flights [RANGE 1 HOUR]"
        browser.fill(f"{part} textarea", json.dumps({"cql": cql, "name": "it's"}))
        command = browser.find(f"{part} .command").text
        assert "-X POST" in command
        assert "it'\\''s" in command
        send(browser, part)
        browser.sees("201 Created", part)
        browser.sees("location: /v1/queries/", part)
        send(browser, part)
        browser.sees("409", part)

        part = open_call(browser, "get/v1/queries/query/result")
        browser.fill(f"{part} input", "it's")
        send(browser, part)
        browser.sees('"carrier"', part)
        [form] = browser.driver.find_elements(By.CSS_SELECTOR, f"{part} .tools select")
        form.send_keys("application/vnd.apache.arrow.stream")
        send(browser, part)
        browser.sees("Save the answer", part)

        part = open_call(browser, "get/v1/queries/query/changes")
        browser.fill(f"{part} input", "it's")
        browser.driver.find_elements(By.CSS_SELECTOR, f"{part} .field select")[0].send_keys("true")
        browser.driver.find_element(By.CSS_SELECTOR, f"{part} .tools select").send_keys("text/")
        send(browser, part)
        browser.sees("it goes on", part)
        pond.ingest("flights", [{"ts": "2026-03-01 11:55:00", "carrier": "ZZ"}])
        pond.execute("HEARTBEAT flights AT TIMESTAMP '2026-03-01 11:56:00'")
        browser.sees("ZZ", part)
        browser.press("Stop")
        browser.wait(lambda: "it goes on" not in browser.text(), "it still goes on")
        assert browser.complaints() == []


def test_calls_are_searched_and_linked(browser: Browser, pond: Pond) -> None:
    with serve(pond) as served:
        browser.forget(served.url)
        every = httpx.get(f"{served.url}/openapi.json").json()["paths"]
        browser.open(f"{served.url}/docs#get/v1/history")
        browser.sees("figures of the last hour or week", "[id='get/v1/history'] .inside")
        shown = browser.driver.find_elements(By.CSS_SELECTOR, ".call")
        assert len(shown) == sum(len(calls) for calls in every.values())
        browser.fill("#sought", "backup cancel")
        browser.wait(
            lambda: len(browser.driver.find_elements(By.CSS_SELECTOR, ".call")) == 1, "not searched"
        )
        assert browser.complaints() == []
