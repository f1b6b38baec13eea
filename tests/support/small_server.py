"""The application with one turn at the database, and nine that may wait for it."""

from fastapi import FastAPI

from server.admission import Admission
from server.main import create_app as create_real_app


def create_app() -> FastAPI:
    app = create_real_app()
    app.state.admission = Admission(at_once=1, most_waiting=9)
    return app
