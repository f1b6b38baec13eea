"""Pictures of the main pages for the README: `python -m benchmarks.web.screenshots --url http://127.0.0.1:8000`.

The server holds what `benchmarks.web.seed --show-intervals` made. Pictures go to docs/images.
"""

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from playwright.sync_api import sync_playwright

from benchmarks.web.people import PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDE, NARROW = {"width": 1200, "height": 820}, {"width": 360, "height": 740}
SETTLE_MS = 2500
PICTURES: tuple[tuple[str, str, str, str, dict[str, int]], ...] = (
    ("leaderboard", "/competitions/digits/leaderboard", "ada", "light", WIDE),
    ("leaderboard-dark", "/competitions/digits/leaderboard", "ada", "dark", WIDE),
    ("leaderboard-phone", "/competitions/digits/leaderboard", "ada", "light", NARROW),
    ("charts", "/competitions/digits/leaderboard/charts", "ada", "dark", WIDE),
    ("overview", "/competitions/digits", "ada", "light", WIDE),
    ("submit", "/competitions/digits/submit", "ada", "light", WIDE),
    ("submission", "/submissions/{running}", "ada", "light", WIDE),
    ("submission-phone", "/submissions/{running}", "ada", "dark", NARROW),
    ("submissions", "/competitions/digits/submissions", "ada", "light", WIDE),
    ("dashboard", "/organise", "grace", "light", WIDE),
    ("dashboard-dark", "/organise", "grace", "dark", WIDE),
    ("control", "/organise/digits", "grace", "light", WIDE),
    ("depth", "/organise/digits/submissions/{scored}", "grace", "light", {"width": 1200, "height": 1200}),
    ("comparison", "/organise/digits/submissions/{scored}/compare?other={other}", "grace", "dark", WIDE),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--running", default="s360", help="id of a submission that runs")
    parser.add_argument("--scored", default="s280", help="id of one that is scored")
    parser.add_argument("--other", default="s323", help="id of another that is scored, to compare with")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("names", nargs="*", help="which pictures; all if none is named")
    options = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        for name, path, person, scheme, viewport in PICTURES:
            if options.names and name not in options.names:
                continue
            address = options.url + path.format(running=options.running, scored=options.scored, other=options.other)
            take(browser, address, options.url, name=name, person=person, scheme=scheme, viewport=viewport)
        browser.close()


def take(browser: "Browser", address: str, url: str, *, name: str, person: str, scheme: Any, viewport: Any) -> None:
    context = browser.new_context(color_scheme=scheme, viewport=viewport, locale="en-GB", timezone_id="UTC")
    page = context.new_page()
    page.goto(f"{url}/login")
    page.fill("#name", person)
    page.fill("#password", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(lambda at: "/login" not in at)
    page.goto(address)
    page.wait_for_load_state("load")
    for figure in page.locator("figure[data-chart]").all():
        figure.locator("canvas").wait_for(timeout=60_000)
    page.wait_for_timeout(SETTLE_MS)
    _write_small(page.screenshot(), IMAGES / f"{name}.png")
    context.close()


def _write_small(png: bytes, path: Path) -> None:
    """Write a picture with its 256 commonest colours, which pages of text and bars do with, in half the bytes."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    counted: Any = picture.getcolors(picture.width * picture.height)
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for _, colour in sorted(counted, reverse=True)[:256] for value in colour])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
