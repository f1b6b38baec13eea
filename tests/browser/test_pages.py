"""Every page in a real browser: nothing serious for axe, nothing in the console, no sideways scrolling, a title."""

import re
from collections.abc import Callable

import pytest
from fastapi.routing import iter_route_contexts

from server.web.router import router
from tests.browser.conftest import Person
from tests.browser.walk import NO_PAGES, WALK, Visit, prepare

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
MIDDLE = {"width": 768, "height": 1024}
OF_COLOURS = "color-contrast", "link-in-text-block"  # the rules of axe that look at them

# What lies on top of each other in a form; tables with columns out of sight that nothing says can be moved; what leaves
# the card or message that it is in; fields of a row whose boxes stand at different heights.
OUT_OF_PLACE = """() => {
  const found = [];
  for (const form of document.querySelectorAll("main form")) {
    const parts = [...form.querySelectorAll("input:not([type=hidden]), select, textarea, button, label")]
      .filter((part) => part.checkVisibility() && !part.closest(".unseen, .drop, .search, .act-bar-stays, .candidates"))
      .map((part) => [part, part.getBoundingClientRect()]);
    for (const [one, a] of parts) for (const [other, b] of parts) {
      if (one === other || one.contains(other) || other.contains(one)) continue;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 4 && high > 4) found.push(`${one.id || one.textContent} lies on ${other.id || other.name}`);
    }
  }
  for (const { tHead: head, tBodies: [body] } of document.querySelectorAll("main table")) {
    const row = body?.rows[0];
    if (!head || !row || scrollY || !head.checkVisibility() || !row.checkVisibility()) continue;
    if (head.getBoundingClientRect().bottom > row.getBoundingClientRect().top + 1)
      found.push(`header lies over a row: ${row.textContent.trim().slice(0, 40)}`);
  }
  for (const table of document.querySelectorAll(".table-wrap:not([tabindex])"))
    if (table.scrollWidth > table.clientWidth + 1) found.push(`columns out of sight: ${table.innerText.slice(0, 40)}`);
  const scrolls = (part) => part.closest("pre, .table-wrap, .code-view, .excerpt, .unseen, svg, .menu-items, .gallery");
  for (const box of document.querySelectorAll("main .card, main .notice, main .figure")) {
    const right = box.getBoundingClientRect().right;
    for (const part of box.querySelectorAll("*")) {
      if (part.matches("pre, .table-wrap") ? false : scrolls(part)) continue;
      if (part.checkVisibility() && part.getBoundingClientRect().right > right + 1)
        found.push(`${part.tagName} leaves its box: ${part.textContent.trim().slice(0, 40)}`);
    }
  }
  for (const row of document.querySelectorAll("main .limit-fields")) {
    const heights = (parts) => [...row.querySelectorAll(parts)].map((part) => part.getBoundingClientRect().top);
    const tops = heights(":scope > .field > .input"), labels = heights(":scope > .field");
    tops.forEach((top, i) => {
      const inRow = labels[i] === labels[i - 1] && Math.abs(top - tops[i - 1]) <= 1;
      if (i && labels[i] === labels[i - 1] && !inRow) found.push(`field ${i} stands out of its row`);
    });
  }
  return found;
}"""

# Once the page has taken in a change: its fonts, a frame more, every figure drawn.
SETTLED = """async () => {
  await document.fonts.ready;
  do await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  while (document.querySelector("figure[aria-busy=true]"));
}"""
# Opens what is folded, the first `most` of a page: what is hidden has no layout to be measured.
UNFOLD = "(most) => document.querySelectorAll('main details').forEach((part, i) => { part.open = i < most; })"
ALL, SOME = 1000, 8  # to look at every operation of the HTTP API takes axe as long as a dozen other pages


def test_no_page_is_left_out_of_the_walk() -> None:
    pages = {
        context.path
        for context in iter_route_contexts(router.routes)
        if context.path and "GET" in (context.methods or ()) and not context.path.endswith(NO_PAGES)
    }
    walked = {visit.route for visits in WALK.values() for visit in visits}
    assert pages == walked - {"/nowhere"}


@pytest.mark.browser
@pytest.mark.slow
def test_every_page_is_accessible_quiet_and_fits(person: Callable[..., Person]) -> None:
    somebody = person(color_scheme="light", viewport=WIDE)
    seeded = somebody.site.seeded
    ids = prepare() | {
        "running": seeded.running_submission_id,
        "failed": seeded.failed_submission_id,
        "scored": seeded.scored_submission_id,
        "other": seeded.other_scored_submission_id,
    }
    faults: list[str] = []
    for name, visits in WALK.items():
        somebody.context.clear_cookies()
        if name:
            somebody.log_in(name)
        for visit in visits:
            path = visit.path(ids)
            faults += [f"{name} {path}: {fault}" for fault in found_on(somebody, visit, path)]
        if name == "ada":
            somebody.go("/competitions/digits/team").get_by_role("button", name="Invite", exact=True).click()
            somebody.page.locator(".token").wait_for()
            faults += [f"the link of an invitation: {fault}" for fault in out_of_place(somebody)]
    assert faults == [], "\n".join(faults)


def found_on(somebody: Person, visit: Visit, path: str) -> list[str]:
    """Return what is wrong with one page, wide, on a tablet and on a telephone, light and dark."""
    page = somebody.page
    page.set_viewport_size(WIDE)
    somebody.complaints.clear()
    answer = page.goto(somebody.site.url + path)
    faults = [] if answer and answer.status == visit.status else [f"answered {answer.status if answer else None}"]
    if not re.fullmatch(visit.title, page.title()):
        faults.append(f"is called {page.title()!r}")
    faults += out_of_place(somebody, accessible=True)
    refusal = f"status of {visit.status} "  # the browser notes that the page itself is a refusal, which was meant
    return faults + [complaint for complaint in somebody.complaints if visit.status == 200 or refusal not in complaint]


def out_of_place(somebody: Person, *, accessible: bool = False) -> list[str]:
    """Return what does not fit on the page that is open, at each width; accessible: also what axe finds there.

    The dark theme is other colours and nothing else: there axe looks for what colours can make wrong, at one width.
    """
    page, faults = somebody.page, []
    for size in (NARROW, MIDDLE, WIDE):
        page.set_viewport_size(size)
        page.evaluate(UNFOLD, ALL)
        page.evaluate(SETTLED)
        found = []
        if (width := page.evaluate("document.documentElement.scrollWidth")) > size["width"]:
            found.append(f"scrolls sideways: {width} of {size['width']}")
        found += page.evaluate(OUT_OF_PLACE)
        if accessible:
            page.evaluate(UNFOLD, SOME)
            found += somebody.accessibility_faults()
        faults += [f"{fault} ({size['width']} wide)" for fault in found]
    if accessible:
        page.emulate_media(color_scheme="dark")
        page.evaluate(SETTLED)
        faults += [f"{fault} in the dark" for fault in somebody.accessibility_faults(OF_COLOURS)]
        page.emulate_media(color_scheme="light")
    return faults


@pytest.mark.browser
@pytest.mark.slow
def test_figures_are_asked_for_once_and_end_in_the_last_theme(person: Callable[..., Person]) -> None:
    somebody = person("ada", color_scheme="light", viewport=WIDE)
    asked: list[str] = []
    somebody.page.on("request", lambda request: asked.append(request.url) if ".json" in request.url else None)
    page = somebody.go("/competitions/digits/leaderboard/charts")
    pixels = "() => [...document.querySelectorAll('.chart canvas')].map((canvas) => canvas.toDataURL())"
    page.evaluate(SETTLED)
    light = page.evaluate(pixels)
    for scheme in ("dark", "light", "dark"):
        page.emulate_media(color_scheme=scheme)
    page.evaluate(SETTLED)
    dark = page.evaluate(pixels)
    assert len(light) == len(dark) == page.locator("figure[data-chart]").count() == len(asked) > 0
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page.emulate_media(color_scheme="light")
    page.evaluate(SETTLED)
    assert page.evaluate(pixels) == light


@pytest.mark.browser
@pytest.mark.slow
def test_narrow_pages_hide_nothing_and_paper_has_nothing_to_press(person: Callable[..., Person]) -> None:
    somebody = person("ada", color_scheme="dark", viewport=NARROW)
    page = somebody.go("/competitions/digits")
    page.locator("main p").first.evaluate("sentence => { sentence.textContent = 'a'.repeat(400); }")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    for name, path in (("ada", "/competitions/digits/submissions"), ("grace", "/organise/digits/submissions")):
        somebody.context.clear_cookies()
        somebody.log_in(name)
        page = somebody.go(path)
        assert page.locator(".table-wrap").evaluate("box => box.scrollWidth <= box.clientWidth"), path
        assert page.get_by_role("row").count() > 5, path
    page.set_viewport_size({"width": 1100, "height": 800})
    page = somebody.go("/competitions/digits/leaderboard")
    cell = page.locator(".board-lines .board-activity").last
    cell.evaluate("cell => { cell.textContent = '59 minutes ago'; cell.style.whiteSpace = 'nowrap'; }")
    assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    page.emulate_media(media="print")
    for name in (".topbar", ".tabs", ".segments", ".search", ".footer"):
        assert not page.locator(name).first.is_visible(), name
    assert page.locator(".board-name").first.is_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
