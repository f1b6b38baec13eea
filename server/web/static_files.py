"""Static files under their content's hash, and what is looked for at a usual address.

An address with an old hash gives today's file, but is not kept.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import PlainTextResponse

from lethe.errors import NotFound
from server.web.assets import get_assets

router = APIRouter(include_in_schema=False)

FOR_EVER = "public, max-age=31536000, immutable"


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
    """Send what search engines are asked to leave alone: what is nobody's but its reader's."""
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
    headers = {
        "Cache-Control": FOR_EVER if content_hash == asset.hash else "no-cache",
        "ETag": f'"{asset.hash}"',
    }
    if if_none_match == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)
