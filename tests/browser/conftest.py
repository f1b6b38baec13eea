"""A seeded instance behind a real web server, and people in front of real browsers."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn

from server.accounts import passwords
from server.config import get_settings
from server.deps import get_database
from server.main import create_app
from server.storage import get_storage
from tests.support.instance import CACHES, QUICK_HASHER
from tests.support.seeded_competition import Seeded, seed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
# Chosen in the browser: the whole answer of axe takes longer to hand over than to find.
SERIOUS = """async (options) => (await axe.run(document, options)).violations
  .filter((fault) => ["serious", "critical"].includes(fault.impact))
  .map((fault) => `${fault.id}: ${fault.nodes[0].target}`)"""
TEAMS, SUBMISSIONS = 30, 240


@dataclass
class Site:
    """Where the server listens, and what it holds."""

    url: str
    seeded: Seeded


@dataclass
class Person:
    """Somebody with a browser. Whatever the console says is kept."""

    site: Site
    context: "BrowserContext"
    page: "Page"
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> "Page":
        self.page.goto(self.site.url + path)
        return self.page

    def log_in(self, name: str) -> None:
        self.go("/login")
        self.page.fill("#name", name)
        self.page.fill("#password", self.site.seeded.password)
        self.page.click("main button[type=submit]")
        self.page.wait_for_url(lambda url: "/login" not in url)

    def accessibility_faults(self, rules: Sequence[str] = ()) -> list[str]:
        """Return what axe finds that is serious or worse. rules: of axe's, the only ones; all if none are named."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())  # not a <script>: the page's own policy would refuse it
        options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
        found: list[str] = self.page.evaluate(SERIOUS, options)
        return found


@pytest.fixture
def site(migrated_sqlite_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    values = {"DATABASE_URL": migrated_sqlite_url, "REDIS_URL": redis_url, "HOME": str(tmp_path / "home")}
    for name, value in values.items():
        monkeypatch.setenv(f"LETHE_{name}", value)
    monkeypatch.setenv("LETHE_STORAGE_URL", (tmp_path / "storage").as_uri())
    monkeypatch.setattr(passwords, "_hasher", QUICK_HASHER)
    for cache in CACHES:
        cache.cache_clear()
    get_settings()
    seeded = seed(get_database(), teams=TEAMS, submissions=SUBMISSIONS, storage=get_storage())
    with _serving() as port:
        yield Site(f"http://127.0.0.1:{port}", seeded)
    get_database().dispose()
    for cache in CACHES:
        cache.cache_clear()


@pytest.fixture
def person(site: Site, browser: "Browser") -> Iterator[Callable[..., Person]]:
    """Make people: `person()` is a visitor, `person("ada")` is logged in; options go to the browser."""
    people: list[Person] = []

    def make(name: str = "", **options: object) -> Person:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        somebody = Person(site, context, context.new_page())
        somebody.page.on("console", lambda message: _note(somebody, message))
        somebody.page.on("pageerror", lambda error: somebody.complaints.append(str(error)))
        people.append(somebody)
        if name:
            somebody.log_in(name)
        return somebody

    yield make
    for somebody in people:
        somebody.context.close()


def _note(somebody: Person, message: "ConsoleMessage") -> None:
    if message.type in ("error", "warning"):
        somebody.complaints.append(message.text)


class _serving:
    """A web server in a thread of this process."""

    def __enter__(self) -> int:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(), log_level="warning", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()
        while not self.server.started:
            time.sleep(0.02)
        return int(listening.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(20)
