"""What a page does while it is open: it stops, sleeps, refreshes, and says when it cannot."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, Request

from harness.cluster import BarnabasCluster
from harness.deadline import wait_for

HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
REFRESH = "htmx.trigger(document.body, 'refresh')"
SCROLLED = "document.querySelector('#list .wide').scrollLeft"


def await_in(page: Page, condition: str) -> None:
    """Wait until an expression of JavaScript is true; Playwright's own wait needs `eval`, which the pages forbid."""
    wait_for(lambda: page.evaluate(condition), bool, 120)


def tails(page: Page, base: str) -> Iterator[str]:
    """Follow a topic to which nobody writes: the tail ends when its tab is hidden, and by the button."""
    with _streams(page) as (opened, ended):
        page.goto(f"{base}/topics/airports/messages?from=end&follow=1")
        await_in(page, "document.querySelector('#progress').textContent.includes('followed 0')")
        page.evaluate(HIDE, True)
        if not _within(page, lambda: len(ended) == 1):
            yield "a tail of a hidden tab does not end before a message comes"
        with page.expect_navigation():
            page.evaluate(HIDE, False)
        await_in(page, "document.querySelector('#progress').textContent.includes('followed 0')")
        if len(opened) != 2:
            yield f"a tab that is shown again has {len(opened)} tails; allowed: 2, one after the other"
        if not page.locator("#stop").count():
            yield "a tail has no button that stops it"
            return
        page.locator("#stop").focus()
        page.keyboard.press("Enter")
        if not _within(page, lambda: len(ended) == 2):
            yield "the button does not stop a tail"
        if not re.search(r"followed 0, 0 found; stopped", page.locator("#progress").text_content() or ""):
            yield f"a tail that was stopped says {page.locator('#progress').text_content()!r}"


@contextmanager
def _streams(page: Page) -> Iterator[tuple[list[Request], list[Request]]]:
    """Collect the requests for events that begin and that end in the browser."""
    opened: list[Request] = []
    ended: list[Request] = []

    def kept(found: list[Request]) -> Callable[[Request], None]:
        return lambda each: found.append(each) if "/stream" in each.url else None

    began, over = kept(opened), kept(ended)
    page.on("request", began)
    page.on("requestfailed", over)
    page.on("requestfinished", over)
    try:
        yield opened, ended
    finally:
        page.remove_listener("request", began)
        page.remove_listener("requestfailed", over)
        page.remove_listener("requestfinished", over)


def _within(page: Page, condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """True if a condition becomes true in time; the page gets the events meanwhile."""
    for _ in range(int(seconds * 10)):
        if condition():
            return True
        page.wait_for_timeout(100)
    return condition()


def refreshed(page: Page, base: str, cluster: BarnabasCluster) -> Iterator[str]:
    """Look at a group whose lag grows, and at a wide list: both are refreshed where they are."""
    page.goto(f"{base}/groups/billing")
    before = page.locator("#list").text_content() if page.locator("#list").count() else ""
    cluster.client().write("flights", [b"one more"])
    if not before or not _within(page, lambda: page.locator("#list").text_content() != before):
        yield "the open page of a group does not show a lag that has grown"
    size = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{base}/topics")
    page.evaluate("document.querySelector('#list .wide').scrollLeft = 100")
    page.evaluate("document.querySelector('#list').setAttribute('data-old', '')")
    page.evaluate(REFRESH)
    await_in(page, "!document.querySelector('#list').hasAttribute('data-old')")
    if page.evaluate(SCROLLED) != 100:
        yield f"a refreshed list is scrolled to {page.evaluate(SCROLLED)}; allowed: 100, where it was"
    assert size is not None
    page.set_viewport_size(size)


def without_answers(page: Page, base: str) -> Iterator[str]:
    """Look at a list while the console does not answer: the page says so, and its age grows."""
    page.goto(f"{base}/topics")
    page.route("**/topics*", lambda route: route.abort())
    page.evaluate(REFRESH)
    if not _within(page, lambda: "does not answer" in (page.locator("main").text_content() or "")):
        yield "an open page does not say that the console does not answer"
    before_s = _age_s(page)
    if not _within(page, lambda: _age_s(page) >= before_s + 2):
        yield f"the age of an open page stays {before_s} s"
    page.unroute("**/topics*")
    page.evaluate(REFRESH)
    if not _within(page, lambda: "does not answer" not in (page.locator("main").text_content() or "")):
        yield "an open page still says that the console does not answer"


def _age_s(page: Page) -> int:
    found = re.search(r"(\d+) s ago", page.locator("#age").text_content() or "")
    return int(found[1]) if found else -1


def logged_out(page: Page, base: str) -> Iterator[str]:
    """End the session of open pages elsewhere: a list leads to the login, and a tail says why it ends."""
    other = page.context.new_page()
    other.goto(f"{base}/topics/airports/messages?from=end&follow=1")
    page.goto(f"{base}/topics?sort=name")
    third = page.context.new_page()
    third.goto(f"{base}/groups")
    with third.expect_navigation():
        third.get_by_role("button", name="Log out").click()
    page.evaluate(REFRESH)
    if not _within(page, lambda: page.url.endswith("/login?back=%2Ftopics%3Fsort%3Dname")):
        yield f"an open list of a session that has ended shows {page.url}"
    if not _within(page, lambda: "ended" in (other.locator("#progress").text_content() or "")):
        yield f"a tail of a session that has ended says {other.locator('#progress').text_content()!r}"
    third.close()
    other.close()


def refused(page: Page, base: str) -> Iterator[str]:
    """Open a tail where the limit is reached: the page says so, and does not try again and again."""
    with _streams(page) as (opened, _):
        page.goto(f"{base}/topics/airports/messages?from=end&follow=1")
        if not _within(page, lambda: "which is the limit" in (page.locator("#progress").text_content() or "")):
            yield f"a tail beyond the limit says {page.locator('#progress').text_content()!r}"
        page.wait_for_timeout(2_000)
        if len(opened) != 1:
            yield f"a tail beyond the limit is tried {len(opened)} times"
