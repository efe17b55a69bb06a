"""`python -m console_tour`: visit the pages in headless Chromium, and fail where one is slow, large or broken.

Playwright drives Debian's Chromium; `make console-tools` installs both.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from playwright.sync_api import Page, sync_playwright

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.running_console import RunningConsole

TOPICS_A_REQUEST: Final = 250
SERVER_MS_MAX: Final = 200.0
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
    "/users",
)
MARKUP: Final = b"<img src=x onerror=document.title='broken'>"


def main() -> int:
    """Run the tour, and return 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(prog="console_tour", description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the pages")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, barnabas_cluster(Path(place), 3) as cluster:
        _fill(cluster, given.topics, given.groups)
        console = RunningConsole(cluster.bootstrap, Path(place))
        try:
            console.process.start()
            problems = list(_tour(cluster, console, given.topics, given.pictures))
            print(f"the log of the console:\n{console.log()}" if problems else "", end="")
            assert console.process.stop() == 0, console.log()
        finally:
            console.process.close()
    print("\n".join(problems) or "the tour found nothing")
    return 1 if problems else 0


def _fill(cluster: BarnabasCluster, topics: int, groups: int) -> None:
    """Make topics, groups with lag, and messages with markup."""
    cluster.create_topic("flights", 6, 3)
    cluster.create_topic("airports", 1, 3)
    client = cluster.client()
    flights = [f'{{"flight": {number}, "from": "JFK", "to": "LAX"}}'.encode() for number in range(200)]
    for number in range(6):
        client.write("flights", flights, number)
    client.write("airports", [MARKUP])
    for number in range(groups):
        name = "billing" if number == 0 else f"group-{number}"
        client.commit(name, *(TopicPartition("flights", each, number % 200) for each in range(6)))
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        names = [f"orders-{number:05d}" for number in range(topics)]
        for begin in range(0, len(names), TOPICS_A_REQUEST):
            some = [NewTopic(name, 1, 1) for name in names[begin : begin + TOPICS_A_REQUEST]]
            admin.create_topics(some, timeout_ms=60_000)


def _tour(cluster: BarnabasCluster, console: RunningConsole, topics: int, pictures: Path | None) -> Iterator[str]:
    visitor = console.visitor()
    wait_for(lambda: visitor.json("/topics")["whole"], lambda count: count >= topics, 300)
    yield from _served(console)
    with _browser() as page:
        wrong: list[str] = []
        page.on("console", lambda each: wrong.append(each.text) if each.type == "error" else None)
        page.on("pageerror", lambda each: wrong.append(str(each)))
        base = f"http://127.0.0.1:{console.process.port}"
        yield from _looked_at(page, base, pictures)
        yield from _by_keyboard(page, base)
        yield from _messages(page, base, cluster, pictures)
        yield from _on_a_phone(page, base)
        yield from (f"an error in the browser: {each}" for each in dict.fromkeys(wrong))
        yield from _without_a_broker(page, base, cluster)


@contextmanager
def _browser() -> Iterator[Page]:
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield chromium.new_page(viewport=DESK)
        finally:
            chromium.close()


def _served(console: RunningConsole) -> Iterator[str]:
    visitor = console.visitor()
    for path in PAGES:
        began = time.perf_counter()
        answer = visitor.get(path)
        took_ms, size = (time.perf_counter() - began) * 1000, len(answer.text.encode())
        print(f"{path}: {answer.status}, {took_ms:.0f} ms, {size / 1024:.0f} KiB")
        if answer.status != 200 or size > PAGE_BYTES_MAX:
            yield f"{path}: {answer.status}, {size} bytes; allowed: 200, {PAGE_BYTES_MAX} bytes"
        if took_ms > SERVER_MS_MAX:
            yield f"{path} took {took_ms:.0f} ms; allowed: {SERVER_MS_MAX:.0f}"


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
    _await(page, "document.querySelectorAll('#list tbody tr').length === 1")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    if "search=airp" not in page.url:
        yield f"the search is not in the address: {page.url}"


def _messages(page: Page, base: str, cluster: BarnabasCluster, pictures: Path | None) -> Iterator[str]:
    page.goto(f"{base}/topics/flights/messages?from=-5")
    _await(page, "document.querySelector('#progress').textContent.includes('searched to the end')")
    _picture(page, pictures, "console-messages")
    page.goto(f"{base}/topics/airports/messages?from=start&follow=1")
    _await(page, "document.querySelectorAll('#rows tr').length === 1")
    cluster.client().write("airports", [b"just now"])
    _await(page, "document.querySelector('#rows').textContent.includes('just now')")
    if page.title() == "broken" or page.locator("#rows img").count():
        yield "the text of a message became markup"


def _on_a_phone(page: Page, base: str) -> Iterator[str]:
    page.set_viewport_size(PHONE)
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
    _await(page, "document.body.textContent.includes('Under-replicated')")
    cluster.start(2)
    page.goto(f"{base}/")
    _await(page, "document.body.textContent.includes('Every replica is in sync')")
    if page.locator("h1").text_content() != "Cluster":
        yield "the page of the cluster is gone"


def _await(page: Page, condition: str) -> None:
    """Wait until an expression of JavaScript is true; Playwright's own wait needs `eval`, which the pages forbid."""
    wait_for(lambda: page.evaluate(condition), bool, 120)


def _picture(page: Page, folder: Path | None, name: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
