"""The application with one bare route beside it, to compare with."""

from fastapi import FastAPI

from server.main import create_app as create_real_app


def create_app() -> FastAPI:
    """Return the real application, and `/hello`, which does nothing."""
    app = create_real_app()

    @app.get("/hello")
    async def hello() -> str:
        return "hello"

    app.router.routes.insert(0, app.router.routes.pop())
    return app
