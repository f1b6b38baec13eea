"""`python -m tests.support.narrow_server`: the web server with a quarter of its connections and fewer threads.

What waits for what it holds up itself does so among nine requests here, and among sixty with the usual limits.
"""

from anyio import to_thread
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

import server.main
from server import admission, db, serve

CONNECTIONS, THREADS = 5, 3
MORE_THAN_BOTH = CONNECTIONS + THREADS + 1
TURNS, LOOKS, LONG_WORK = 2, 1, 1  # two connections are left for what no request waits for

make_usual_app = server.main.create_app


class FewThreads:
    """Gives each request of an application some of few threads: their number belongs to the event loop."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        await self.app(scope, receive, send)


def create_app() -> FastAPI:
    app = make_usual_app()
    app.state.admission = admission.Admission(at_once=TURNS)
    app.add_middleware(FewThreads)
    return app


if __name__ == "__main__":
    db.POOL.update(pool_size=CONNECTIONS, max_overflow=0)
    admission.MAX_LOOKS, admission.MAX_LONG_REQUESTS = LOOKS, LONG_WORK
    server.main.create_app = create_app
    serve.main()
