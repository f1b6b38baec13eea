"""The notebooks of examples/guides, executed cell by cell, beside a small server and what does its worker's work."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from server.models.account import Role
from server.models.submission import Submission
from tests.support.forked_children import forked_children
from tests.support.instance import PASSWORD, Instance, repeated
from tests.support.one_turn_client import OneTurnClient

GUIDES = Path(__file__).parents[2] / "examples" / "guides"


def execute(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **given: object) -> dict[str, Any]:
    """Run every cell in one namespace. given: values in place of those that a reader fills in."""
    monkeypatch.chdir(folder)
    values: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads((GUIDES / f"{name}.ipynb").read_text("utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), values)
            values |= {key: value for key, value in given.items() if key in values}
    return values


@contextmanager
def a_worker(server: Instance, monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> Iterator[None]:
    """Let clients reach the server, while `work` is done again and again as a worker would."""
    with OneTurnClient(server.client.app, base_url="http://localhost/api/v1") as http, repeated(work, every_s=0.01):
        monkeypatch.setattr("lethe.client.api.httpx.Client", lambda **_: http)
        yield


def test_every_guide_has_a_test() -> None:
    tested = {"first_submission", "host_a_competition", "measure_your_models", "compare_two_methods"}
    assert {path.stem for path in GUIDES.glob("*.ipynb")} == tested
    assert all(f"({name}.ipynb)" in (GUIDES / "README.md").read_text("utf-8") for name in tested)


def test_first_submission(server: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition()

    def score() -> None:
        with server.database.read() as session:
            waiting = session.scalars(select(Submission.id).where(Submission.finished_at.is_(None))).all()
        for submission_id in waiting:
            server.score(submission_id, 0.125)

    with a_worker(server, monkeypatch, score):
        values = execute("first_submission", tmp_path, monkeypatch)
    assert values["done"]["stage"] == "scored"
    assert [row["score"] for row in values["board"]["rows"] if row["kind"] == "team"] == [0.125]


def test_host_a_competition(server: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.account("organiser", Role.ORGANISER)
    with a_worker(server, monkeypatch, server.prepare_splits):
        values = execute("host_a_competition", tmp_path, monkeypatch, PASSWORD=PASSWORD)
        assert values["server"].competition("my-digits")["state"] == "open"


def test_measure_your_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = execute("measure_your_models", tmp_path, monkeypatch)
    assert values["result"].share_of_oracle < 1.0
    assert values["found"]["klom"].result.value > 0.0
    assert "missing" in values["found"]["tow"].not_computed


def test_compare_two_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forked_children():
        values = execute("compare_two_methods", tmp_path, monkeypatch)
    assert set(values["found"].methods) >= {"finetune LR=0.05", "gradient_ascent"}
    assert "accuracy_gap" in values["found"].to_csv()
