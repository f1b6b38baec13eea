"""Static files, read once: each is served under its own content's hash, cacheable for ever.

`url("css/app.css")` is `/static/<hash>/css/app.css`; `integrity(...)` is what `<script integrity>` wants. A `url(...)`
in a style sheet that names another of our files is rewritten to that file's hashed address.
"""

import base64
import hashlib
import mimetypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import PlainTextResponse

from lethe.errors import NotFound

STATIC = Path(__file__).parents[1] / "static"
HASH_LENGTH = 16
SERVED = frozenset({".css", ".js", ".svg", ".woff2", ".png", ".ico", ".txt"})
SHEET = "css/lethe.css"
SHEETS = (
    "vendor/modern-normalize/modern-normalize.css",
    "css/theme.css",
    "css/base.css",
    "css/components.css",
    "css/forms.css",
    "css/tables.css",
    "css/pages.css",
    "css/explained.css",
    "css/board.css",
    "css/submissions.css",
    "css/organise.css",
    "css/lists.css",
    "css/help.css",
    "css/print.css",
)
CSS_URL = re.compile(r'url\("(/?[^":]+)"\)')

mimetypes.add_type("font/woff2", ".woff2")
mimetypes.add_type("text/javascript", ".js")


@dataclass(frozen=True)
class Asset:
    """A static file."""

    path: str
    body: bytes

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:HASH_LENGTH]

    @cached_property
    def integrity(self) -> str:
        return "sha384-" + base64.b64encode(hashlib.sha384(self.body).digest()).decode()

    @property
    def media_type(self) -> str:
        return mimetypes.guess_type(self.path)[0] or "application/octet-stream"

    @property
    def url(self) -> str:
        return f"/static/{self.hash}/{self.path}"


class Assets:
    """Every file below a folder, by its path in it. bundles: files that are served as one, under a name of its own."""

    def __init__(self, folder: Path, bundles: Mapping[str, Sequence[str]] | None = None) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.suffix in SERVED and path.is_file())
        plain = [path for path in paths if path.suffix != ".css"]
        sheets = [path for path in paths if path.suffix == ".css"]
        self._assets: dict[str, Asset] = {}
        for path in (*plain, *sheets):  # sheets last: they name the others by hash
            name = path.relative_to(folder).as_posix()
            body = path.read_bytes()
            self._assets[name] = Asset(name, self._with_hashed_urls(body) if path.suffix == ".css" else body)
        for name, parts in (bundles or {}).items():
            self._assets[name] = Asset(name, b"\n".join(self._assets.pop(part).body for part in parts))

    def get(self, path: str) -> Asset | None:
        return self._assets.get(path)

    def url(self, path: str) -> str:
        return self._assets[path].url

    def integrity(self, path: str) -> str:
        return self._assets[path].integrity

    def _with_hashed_urls(self, sheet: bytes) -> bytes:
        def hashed(match: re.Match[str]) -> str:
            asset = self._assets.get(match[1])
            return f'url("{asset.url}")' if asset else match[0]

        return CSS_URL.sub(hashed, sheet.decode()).encode()


@lru_cache
def get_assets() -> Assets:
    """Return the server's own static files."""
    return Assets(STATIC, {SHEET: SHEETS})


router = APIRouter(include_in_schema=False)

IMMUTABLE = "public, max-age=31536000, immutable"


ROBOTS = """\
User-agent: *
Disallow: /account
Disallow: /organise
Disallow: /submissions
Disallow: /reset
Disallow: /api/v1/
"""


@router.get("/robots.txt")
async def robots() -> PlainTextResponse:
    """Send robots.txt: personal pages are excluded."""
    return PlainTextResponse(ROBOTS, headers={"Cache-Control": "public, max-age=86400"})


@router.get("/favicon.ico")
async def favicon() -> Response:
    """Send the icon to what looks for it at its usual address: pages name the drawn one."""
    icon = get_assets().get("img/favicon.ico")
    if icon is None:
        raise NotFound("There is no icon")
    return Response(icon.body, media_type="image/x-icon", headers={"Cache-Control": "public, max-age=86400"})


@router.get("/static/{content_hash}/{path:path}")
async def static_file(content_hash: str, path: str, if_none_match: Annotated[str, Header()] = "") -> Response:
    """Send one file."""
    asset = get_assets().get(path)
    if asset is None:
        raise NotFound(f"There is no file {path!r}")
    headers = {"Cache-Control": IMMUTABLE if content_hash == asset.hash else "no-cache", "ETag": f'"{asset.hash}"'}
    if if_none_match == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)
