"""Every page in a real browser: nothing serious for axe, nothing in the console, no sideways scrolling."""

from collections.abc import Callable

import pytest

from tests.browser.conftest import Person

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VISITOR = ("/", "/login", "/register", "/forgot", "/competitions/digits", "/competitions/digits/leaderboard")
PARTICIPANT = (
    "/competitions/digits",
    "/competitions/digits/leaderboard",
    "/competitions/digits/leaderboard?q=heron",
    "/competitions/digits/submit",
    "/competitions/digits/submissions",
    "/competitions/digits/team",
    "/account",
    "/submissions/{running}",
    "/submissions/{failed}",
    "/submissions/{scored}",
    "/submissions/{scored}/source",
    "/submissions/{scored}/receipt",
)
ORGANISER = (
    "/organise",
    "/organise/new",
    "/organise/digits",
    "/organise/digits/submissions",
    "/organise/digits/submissions/{scored}",
    "/organise/digits/teams",
    "/organise/digits/audit",
    "/organise/digits/submissions/{scored}/compare?other=s41",
    "/organise/digits/rejudgings",
    "/organise/digits/limits",
    "/organise/digits/splits/public",
    "/organise/digits/exports",
)
ADMINISTRATOR = ("/people",)
WHO = (("", VISITOR), ("ada", PARTICIPANT), ("grace", ORGANISER), ("margaret", ADMINISTRATOR))
LOOKS = (
    {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
)


@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "360px"])
@pytest.mark.parametrize(("name", "paths"), WHO, ids=["visitor", "participant", "organiser", "administrator"])
def test_every_page_is_accessible_and_quiet(
    person: Callable[..., Person], name: str, paths: tuple[str, ...], look: dict[str, object]
) -> None:
    somebody = person(name, **look)
    seeded = somebody.site.seeded
    ids = {
        "running": seeded.running_submission_id,
        "failed": seeded.failed_submission_id,
        "scored": seeded.scored_submission_id,
    }
    faults: list[str] = []
    for path in paths:
        page = somebody.go(path.format(**ids))
        page.wait_for_load_state("load")
        faults += [f"{path} {fault}" for fault in somebody.accessibility_faults()]
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > page.viewport_size["width"]:  # type: ignore[index]
            faults.append(f"{path} scrolls sideways: {width}")
        faults += [f"{path} {complaint}" for complaint in somebody.complaints]
        somebody.complaints.clear()
    assert faults == []
