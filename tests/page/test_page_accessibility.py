"""Keyboard, lecture mode and accessibility of the page, in Chromium."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from pages import (
    EXPERTS,
    PHONE,
    TEXT,
    accessibility_problems,
    expect,
    expect_state,
    load_axe,
    serve_page,
    translated,
    wait_for_value,
)

from transduce.translation.translator import Translator

# Keyboard


def test_keyboard_shortcuts_change_layer_head_and_step(page: Any) -> None:
    page.locator("h1").click()
    page.locator("#text").blur()
    for key in "e[.,.k":
        page.keyboard.press(key)
    expect_state(page, stack="encoder", layer="1", view="1", step="1")
    page.keyboard.press("/")
    page.keyboard.press("e")
    expect(page.locator("#text")).to_have_value(TEXT + "e")


def test_shortcuts_are_listed_and_can_be_switched_off(page: Any) -> None:
    page.locator("#text").blur()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    dialog.get_by_label("single-key shortcuts").uncheck()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    page.keyboard.press("e")
    expect(page.locator("input[name=stack][value=cross]")).to_be_checked()
    page.keyboard.press("?")
    dialog.get_by_label("single-key shortcuts").check()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.keyboard.press("e")
    expect(page.locator("input[name=stack][value=encoder]")).to_be_checked()


FOCUSED = """(() => {
  const e = document.activeElement;
  const name = e.name || e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent;
  return e === document.body ? "" : [e.tagName, e.dataset.item ?? "", name ?? ""].join("|");
})()"""
"""The element with the focus, the kind of its group, and its name."""


def test_every_group_has_one_tab_stop(page: Any) -> None:
    """All tab stops have a name, and there are few of them."""
    page.evaluate("document.activeElement.blur()")
    stops: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        element = page.evaluate(FOCUSED)
        if not element:
            break
        stops.append(element)
    assert 30 < len(stops) <= 60, stops
    items = [stop.split("|")[1] for stop in stops if stop.split("|")[1] not in ("", "save")]
    assert sorted(items) == ["lens", "node", "power", "thumbnail", "token", "token"]
    assert not [stop for stop in stops if stop.endswith("|")]


def test_arrow_keys_move_within_a_group(page: Any) -> None:
    page.locator(".tokens.source button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    third = page.locator(".tokens.source button").nth(2)
    expect(third).to_be_focused()
    expect(third).to_have_attribute("tabindex", "0")
    expect(page.locator(".tokens.source button[tabindex='0']")).to_have_count(1)
    page.locator(".thumbnail").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".thumbnail").nth(4)).to_be_focused()
    page.keyboard.press("Enter")
    for group, value in (("layer", 2), ("view", 1)):
        expect(page.locator(f"input[name={group}][value='{value}']")).to_be_checked()


# Lecture mode, axe-core


def test_lecture_mode_has_labels_of_22_pixels(open_page: Callable[..., Any], address: str) -> None:
    window = {"viewport": {"width": 1920, "height": 1080}}
    page = open_page(f"{address}#text={TEXT}&sentence=0&lecture=true", **window)
    expect(page.locator("main[aria-busy=false] .heat svg.figure")).to_be_visible()
    measure = "all => all.map((e) => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a)"
    for figure in (".lines", ".heat"):
        labels = page.locator(f"{figure} .token.end")
        wait_for_value(page, lambda labels=labels: min(labels.evaluate_all(measure), default=0) >= 22, True)
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    page.wait_for_function("document.documentElement.scrollHeight <= innerHeight + 1")
    page.locator("#inspected").click()
    page.keyboard.press("l")
    expect(page.locator("#text")).to_be_visible()


@pytest.mark.parametrize(
    "window", [{"color_scheme": "light"}, {"color_scheme": "dark", **PHONE}], ids=["light", "dark phone"]
)
def test_the_page_is_accessible(open_page: Callable[..., Any], address: str, window: dict[str, Any]) -> None:
    """axe-core reports no violations, and nothing exceeds the width of the window."""
    page = open_page(
        f"{address}#text={TEXT}&sentence=0&off=cross.1.1,cross.2.2&alpha=2&step=1&{EXPERTS}", bypass_csp=True, **window
    )
    expect(page.locator(".ablation")).to_be_visible()
    load_axe(page)
    assert not accessibility_problems(page, passes=20)


@pytest.mark.parametrize("window", [{}, {"color_scheme": "dark", **PHONE}], ids=["light", "dark phone"])
def test_every_state_is_accessible(
    open_page: Callable[..., Any], translator: Translator, window: dict[str, Any]
) -> None:
    """axe-core reports no violations, and nothing exceeds the width of the window."""
    with serve_page(translator, translator, keys=["secret"]) as address:
        page = open_page(address, bypass_csp=True, **window)
        load_axe(page)

        def check(what: str) -> None:
            assert (what, accessibility_problems(page)) == (what, [])

        check("empty page with examples")
        page.locator("#text").fill(TEXT)
        expect(page.get_by_label("API key")).to_be_visible()
        check("key wanted")
        page.get_by_label("API key").fill("secret")
        page.keyboard.press("Enter")
        translated(page, translator.translate(TEXT))
        running = {"id": "name", "state": "running", "done": 1, "total": 4}
        page.route(re.compile("/v1/documents"), lambda route: route.fulfill(status=202, json=running))
        document = {"name": "a.html", "mimeType": "text/html", "buffer": b"<p>babo</p>"}
        page.locator("input[type=file]").set_input_files(document)
        expect(page.get_by_role("progressbar")).to_have_js_property("value", 0.25)
        check("document in progress")
        page.get_by_role("button", name="Stop").click()
        page.locator(".word").first.click()
        expect(page.locator(".alternatives li button").first).to_be_visible()
        check("alternatives")
        page.get_by_role("button", name="Look inside this sentence").click()
        expect(page.locator("main[aria-busy=false] #inspected")).to_have_count(1)
        page.get_by_label("Another translation of the sentence").fill("gigo babo")
        page.get_by_label("Sentence to compare with").fill(TEXT)
        expect(page.locator("#reference-section table")).to_have_count(1)
        expect(page.locator("#compare-section figure")).to_have_count(3)
        page.get_by_label("show numbers").check()
        page.get_by_role("button", name="Next", exact=True).click()
        expect(page.locator(".path-numbers table")).to_have_count(1)
        page.locator(".tokens.source button").nth(1).click()
        page.locator("[data-figure=logit-lens]").get_by_role("button", name="Data of").click()
        check("look inside with a pin, a table, a reference, a comparison and the path")
        page.get_by_role("button", name="Keyboard shortcuts").click()
        check("shortcuts")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="lecture mode").click()
        check("lecture mode")


def test_the_keyboard_goes_on_where_a_link_leads(page: Any) -> None:
    page.locator(".section-links button", has_text="Search").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#search-section")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#search-section [data-item=save]").first).to_be_focused()
