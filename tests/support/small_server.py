"""`python -m tests.support.small_server`: the web server with one turn at the database; nine may wait for it."""

from fastapi import FastAPI

import server.main
from server import serve
from server.admission import Admission

make_usual_app = server.main.create_app


def create_app() -> FastAPI:
    app = make_usual_app()
    app.state.admission = Admission(at_once=1, most_waiting=9)
    return app


if __name__ == "__main__":
    server.main.create_app = create_app
    serve.main()
