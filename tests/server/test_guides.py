"""The notebooks of examples/guides, executed cell by cell, beside a small server and what does its worker's work."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from server.competitions import split_leases
from server.competitions.split_leases import PreparedSplit
from server.models.account import Role
from server.models.competition import Split, SplitState
from server.models.submission import Submission
from tests.support.forked_children import forked_children
from tests.support.instance import PASSWORD, Instance
from tests.support.one_turn_client import OneTurnClient

GUIDES = Path(__file__).parents[2] / "examples" / "guides"
PREPARED = PreparedSplit(manifest_sha256="0" * 64, n_forget=3, retraining_time_s=1.0, oracle={"final_score": 0.5})


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
    stopped, errors = threading.Event(), []

    def repeat() -> None:
        try:
            while not stopped.wait(0.01):
                work()
        except Exception as error:
            errors.append(error)

    with OneTurnClient(server.client.app, base_url="http://localhost/api/v1") as http:
        monkeypatch.setattr("lethe.client.api.httpx.Client", lambda **_: http)
        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
    assert not errors


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

    def prepare() -> None:
        with server.database.read() as session:
            waiting = session.scalars(select(Split.id).where(Split.state == SplitState.PENDING.value)).all()
        for split_id in waiting:
            with server.database.write() as session:
                work = split_leases.claim(session, split_id, lease_s=60)
                assert work is None or split_leases.finish(session, work, PREPARED)

    with a_worker(server, monkeypatch, prepare):
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
