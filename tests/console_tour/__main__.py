"""`python -m console_tour`: visit the pages in headless Chromium, and fail where one is slow, large or broken.

Playwright drives Debian's Chromium; `make console-tools` installs both.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, sync_playwright

from barnabas_console.app.streams import READERS_MAX
from console_tour.figures import figures
from console_tour.open_pages import await_in, logged_out, refreshed, refused, tails, without_answers
from console_tour.world import SEEN, USERS, fill, secured_cluster
from harness.cluster import BarnabasCluster
from harness.console_events import events
from harness.deadline import PATIENCE_S, wait_for
from harness.running_console import Answered, RunningConsole, Visitor, logged_in

CROWD: Final = 1_000
CROWD_PAGE_S: Final = 2.0
SPAN_S: Final = 30.0
"""The seconds of one measurement."""
SECURED: Final = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
SERVER_MS_MAX: Final = 200.0
TRIES: Final = 5
"""The number of requests for each page. The quickest counts, because other processes keep the console waiting."""
PAGE_BYTES_MAX: Final = 1 << 20
PHONE: Final[Any] = {"width": 390, "height": 844}
DESK: Final[Any] = {"width": 1280, "height": 800}
PAGES: Final = (
    "/",
    "/transactions",
    "/topics",
    "/topics?sort=lag",
    "/topics/flights",
    "/groups",
    "/groups/billing",
    "/groups/modern-0",
    "/groups/workers-0",
    "/users",
    "/users/viewer",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour, and return 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(prog="console_tour", description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the pages")
    parser.add_argument("--short", action="store_true", help="neither kill and roll brokers nor measure")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place, secured_cluster(Path(place)) as (cluster, logins):
        fill(cluster, given.topics, given.groups)
        if not given.short:
            print(f"without a console: {figures(cluster, SPAN_S)}", flush=True)
        with _console(cluster.bootstrap, Path(place)) as console:
            problems = list(_tour(cluster, console, given))
        with _console(logins, Path(place), "--interval", "10", properties=SECURED) as console:
            problems += _with_users(cluster, console, given)
    print("\n".join(problems) or "the tour found nothing")
    return 1 if problems else 0


@contextmanager
def _console(bootstrap: str, place: Path, *options: str, properties: str = "") -> Iterator[RunningConsole]:
    (place / "client.properties").write_text(properties)
    config = ("--command-config", str(place / "client.properties")) if properties else ()
    console = RunningConsole(bootstrap, place, *config, *options)
    try:
        console.process.start()
        yield console
        assert console.process.stop() == 0, console.log()
        assert "Traceback" not in console.log(), console.log()
    finally:
        console.process.close()


def _tour(cluster: BarnabasCluster, console: RunningConsole, given: argparse.Namespace) -> Iterator[str]:
    visitor = console.visitor()
    wait_for(lambda: visitor.json("/topics")["whole"], lambda count: count >= given.topics, 300)
    kinds = Counter(each["group_type"] for each in visitor.json("/groups?size=1000")["rows"])
    print(f"{given.topics:,} topics; groups: {dict(kinds)}", flush=True)
    yield from _served(console, must_be_quick=not given.short)
    with _browser() as page:
        wrong: list[str] = []
        page.on("console", lambda each: wrong.append(each.text) if each.type == "error" else None)
        page.on("pageerror", lambda each: wrong.append(str(each)))
        base = f"http://127.0.0.1:{console.process.port}"
        yield from _looked_at(page, base, given.pictures)
        yield from _by_keyboard(page, base)
        yield from _messages(page, base, cluster, given.pictures)
        yield from _on_a_phone(page, base, given.pictures)
        yield from tails(page, base)
        yield from refreshed(page, base, cluster)
        yield from (f"an error in the browser: {each}" for each in dict.fromkeys(wrong))
        yield from without_answers(page, base)
        if not given.short:
            yield from _without_a_broker(page, base, cluster)
            yield from _rolled(page, base, cluster)
            yield from _crowd(page, base, console)


def _with_users(cluster: BarnabasCluster, console: RunningConsole, given: argparse.Namespace) -> list[str]:
    with _browser() as page:
        base = f"http://127.0.0.1:{console.process.port}"
        problems = [*_as_a_viewer(page, base), *logged_out(page, base)]
    if given.short:
        return problems
    for count in (1, len(USERS)):
        visitors = [logged_in(console, name) for name in USERS[:count]]
        load = partial(_statuses, visitors)
        wait_for(load, lambda found: found == {200})
        print(f"{count} users: {figures(cluster, SPAN_S, console.process.pid, load)}", flush=True)
    return problems


def _statuses(visitors: Sequence[Visitor]) -> set[int]:
    return {each.get("/topics").status for each in visitors}


@contextmanager
def _browser() -> Iterator[Page]:
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            context = chromium.new_context(viewport=DESK)
            context.set_default_timeout(1000 * PATIENCE_S)
            yield context.new_page()
        finally:
            chromium.close()


def _served(console: RunningConsole, *, must_be_quick: bool) -> Iterator[str]:
    visitor = console.visitor()
    for path in PAGES:
        took_ms, answer = min((_timed(visitor, path) for _ in range(TRIES)), key=lambda each: each[0])
        size = len(answer.text.encode())
        print(f"{path}: {answer.status}, {took_ms:.0f} ms, {size / 1024:.0f} KiB", flush=True)
        if answer.status != 200 or size > PAGE_BYTES_MAX:
            yield f"{path}: {answer.status}, {size} bytes; allowed: 200, {PAGE_BYTES_MAX} bytes"
        if must_be_quick and took_ms > SERVER_MS_MAX:
            yield f"{path} took {took_ms:.0f} ms; allowed: {SERVER_MS_MAX:.0f}"


def _timed(visitor: Visitor, path: str) -> tuple[float, Answered]:
    began = time.perf_counter()
    answer = visitor.get(path)
    return (time.perf_counter() - began) * 1000, answer


def _looked_at(page: Page, base: str, pictures: Path | None) -> Iterator[str]:
    for path in PAGES:
        page.goto(f"{base}{path}")
        if not page.locator("h1").count():
            yield f"{path} has no heading"
    page.goto(f"{base}/topics?sort=lag&search=")
    _picture(page, pictures, "console-topics")
    page.goto(f"{base}/groups/billing")
    _picture(page, pictures, "console-group")


def _by_keyboard(page: Page, base: str) -> Iterator[str]:
    """Search, and open a topic, by keys alone."""
    page.goto(f"{base}/topics")
    page.keyboard.press("Tab")
    if page.evaluate("document.activeElement.className") != "skip":
        yield "the first Tab does not lead to the link that skips the head"
    page.keyboard.press("Enter")
    for _ in range(3):
        if page.evaluate("document.activeElement.name") == "search":
            break
        page.keyboard.press("Tab")
    page.keyboard.type("airp")
    await_in(page, "document.querySelectorAll('#list tbody tr').length === 1")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    if "search=airp" not in page.url:
        yield f"the search is not in the address: {page.url}"


def _messages(page: Page, base: str, cluster: BarnabasCluster, pictures: Path | None) -> Iterator[str]:
    page.goto(f"{base}/topics/flights/messages?from=-5")
    await_in(page, "document.querySelector('#progress').textContent.includes('searched to the end')")
    _picture(page, pictures, "console-messages")
    page.goto(f"{base}/topics/airports/messages?from=start&follow=1")
    await_in(page, "document.querySelectorAll('#rows tr').length === 1")
    cluster.client().write("airports", [b"just now"])
    await_in(page, "document.querySelector('#rows').textContent.includes('just now')")
    if page.title() == "broken" or page.locator("#rows img").count():
        yield "the text of a message became markup"


def _on_a_phone(page: Page, base: str, pictures: Path | None) -> Iterator[str]:
    page.set_viewport_size(PHONE)
    page.goto(f"{base}/topics")
    _picture(page, pictures, "console-phone")
    for path in PAGES:
        page.goto(f"{base}{path}")
        width: Any = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            yield f"{path} is {width} pixels wide on a phone of {PHONE['width']}"
    page.set_viewport_size(DESK)


def _without_a_broker(page: Page, base: str, cluster: BarnabasCluster) -> Iterator[str]:
    """Kill a broker while a page is open: the page says what is not known, and it is right again later."""
    page.goto(f"{base}/")
    cluster.kill(2)
    await_in(page, "document.body.textContent.includes('Under-replicated')")
    cluster.start(2)
    page.goto(f"{base}/")
    await_in(page, "document.body.textContent.includes('Every replica is in sync')")
    if page.locator("h1").text_content() != "Cluster":
        yield "the page of the cluster is gone"


def _rolled(page: Page, base: str, cluster: BarnabasCluster) -> Iterator[str]:
    """Restart the brokers one after the other while a page is open, which names each one while it is away."""
    page.goto(f"{base}/")
    for number in cluster.brokers:
        cluster.stop(number)
        await_in(page, f"document.body.textContent.includes('away: broker {number} with')")
        cluster.start(number)
        await_in(page, "document.body.textContent.includes('Every replica is in sync')")
    if page.locator("h1").text_content() != "Cluster":
        yield "the page of the cluster is gone after a roll"


def _crowd(page: Page, base: str, console: RunningConsole) -> Iterator[str]:
    """Open many tails at once: some are shown, the others are refused, and pages are still served."""
    statuses = Counter[int]()
    with ExitStack() as tails:
        for _ in range(CROWD):
            answer = tails.enter_context(events(console, console.visitor(), "from=end&follow=1"))
            statuses[answer.status] += 1
        began = time.perf_counter()
        status, took_s = console.visitor().get("/topics").status, time.perf_counter() - began
        yield from refused(page, base)
    print(f"{CROWD:,} visitors that tail: {dict(statuses)}; a page beside them: {status}, {1000 * took_s:.0f} ms")
    if statuses != {200: READERS_MAX, 503: CROWD - READERS_MAX} or status != 200 or took_s > CROWD_PAGE_S:
        yield f"a crowd of {CROWD} gets {dict(statuses)}, and a page beside it {status} after {took_s:.1f} s"


def _as_a_viewer(page: Page, base: str) -> Iterator[str]:
    """Log in as a user who may see three topics and one group, by keys alone."""
    page.goto(f"{base}/topics?sort=name")
    page.keyboard.type("viewer")
    page.keyboard.press("Tab")
    page.keyboard.type("viewer-secret")
    page.locator("select[name=mechanism]").select_option("PLAIN")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    names = tuple(page.locator("#list tbody tr td:first-child").all_text_contents())
    if names != SEEN:
        yield f"the viewer sees {names}; allowed: {SEEN}"
    page.goto(f"{base}/groups")
    groups = page.locator("#list tbody tr td:first-child").all_text_contents()
    if groups != ["billing"]:
        yield f"the viewer sees the groups {groups}; allowed: billing"
    for path in ("/topics/orders-00002", "/topics/orders-00002/messages", "/groups/group-1"):
        page.goto(f"{base}{path}")
        if "may not describe it" not in (page.locator("main").text_content() or ""):
            yield f"the viewer sees {path}"


def _picture(page: Page, folder: Path | None, name: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
