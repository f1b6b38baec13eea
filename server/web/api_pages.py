"""The HTTP API's description."""

from fastapi import Request, Response

from server.config import get_settings
from server.web import api_reference
from server.web.deps import ViewerDep
from server.web.page_router import page_router
from server.web.rendering import page

router = page_router(is_public=True)

ADDRESS = "$LETHE_URL"  # never the request's own: the page is kept for everybody


@router.get("/api/docs")
def api_page(request: Request, viewer: ViewerDep) -> Response:  # noqa: ARG001 (the head names who is logged in)
    document = request.app.openapi()
    sections = api_reference.sections(document, url=get_settings().public_url or ADDRESS)
    return page(request, "api.html", document=document, sections=sections)
