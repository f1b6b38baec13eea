"""Documentation inside the site: the participants' pages with a search, and the HTTP API's description."""

from typing import Annotated

from fastapi import Query, Request, Response

from server.config import get_settings
from server.web import api_reference, help_texts
from server.web.deps import ViewerDep
from server.web.page_router import page_router
from server.web.rendering import page

router = page_router(is_public=True)

ADDRESS = "$LETHE_URL"  # never the request's own: the page is kept for everybody


@router.get("/help")
def help_index(
    request: Request,
    viewer: ViewerDep,  # noqa: ARG001 (the head names who is logged in)
    q: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """List the pages, or the sections that hold every word of `q`."""
    return page(
        request, "help.html", pages=help_texts.help_pages(), query=q.strip(), found=help_texts.search(q), shown=None
    )


@router.get("/help/{name}")
def help_page(name: str, request: Request, viewer: ViewerDep) -> Response:  # noqa: ARG001 (as above)
    pages = help_texts.help_pages()
    return page(request, "help.html", pages=pages, query="", found=[], shown=help_texts.help_page(name))


@router.get("/api/docs")
def api_page(request: Request, viewer: ViewerDep) -> Response:  # noqa: ARG001 (the head names who is logged in)
    document = request.app.openapi()
    sections = api_reference.sections(document, url=get_settings().public_url or ADDRESS)
    return page(request, "api.html", document=document, sections=sections)
