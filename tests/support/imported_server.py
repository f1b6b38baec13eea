"""Imported where web servers are forked: all that each would do alike before it reads a setting."""

import uvicorn.lifespan.on
import uvicorn.loops.auto
import uvicorn.protocols.http.h11_impl
import uvicorn.protocols.websockets.auto  # noqa: F401

import server.main
import server.serve
from server.web.assets import get_assets

server.main._routes()
get_assets()
