"""A benchmark on a server: hidden cells, one submission a method, shared by all benchmarks, and nothing twice."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from lethe.reports.benchmark_tables import benchmark_tables
from server.accounts import sessions
from server.benchmarks import benchmarks
from server.db import now
from server.metric_results import metric_results
from server.metric_results.metric_results import ComputedMetric
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionState, Split, SplitState
from server.models.evaluation import Evaluation
from server.models.submission import Fault, Submission
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import Instance

URL = "/api/v1/benchmarks/tiny"
OTHER = "/api/v1/benchmarks/other"


def put(server: Instance, headers: dict[str, str], body: dict[str, Any]) -> Any:
    return server.client.put(f"/api/v1/benchmarks/{body['file']['slug']}", json=body, headers=headers)


def prepared(server: Instance) -> None:
    """Do what workers would: every split is there."""
    references = {"accuracies": {"retain": 1.0, "forget": 0.5, "test": 0.5}}
    references |= {name: {"value": 0.2, "interval": None, "table": {}, "notes": []} for name in ("score", "f")}
    with server.database.write() as session:
        for split in session.scalars(select(Split)):
            split.state, split.manifest_sha256, split.retraining_time_s = SplitState.READY.value, "0" * 64, 1.0
            split.oracle = {"references": {"oracle": references, "original": references}}
        for competition in session.scalars(select(Competition)):
            competition.state = CompetitionState.READY.value


def sweep(server: Instance) -> int:
    return benchmarks.submit_missing(server.database, server.storage, at=now())


def submissions(server: Instance) -> list[Submission]:
    with server.database.read() as session:
        return list(session.scalars(select(Submission).order_by(Submission.message)))


def score_all(server: Instance, value: float = 0.1) -> None:
    """Do what workers would: every submission scored, every metric computed."""
    for submission in submissions(server):
        if submission.stage not in ("scored", "failed"):
            server.score(submission.id, value)
    compute(server)


def compute(server: Instance) -> None:
    with server.database.write() as session:
        for evaluation in session.scalars(select(Evaluation)):
            found = ComputedMetric(metric_version=1, value=0.25, oracle=0.5, original=0.75, table={})
            waiting = metric_results.waiting(session, evaluation.id)
            metric_results.record(session, {each.row_id: found for each in waiting})


@pytest.fixture
def olga(server: Instance) -> dict[str, str]:
    return server.organiser("olga")


@pytest.fixture
def stored(server: Instance, olga: dict[str, str], body: Any) -> Any:
    """The answer to a benchmark that olga has sent."""
    return put(server, olga, body())


@pytest.fixture
def swept(server: Instance, stored: Any) -> Instance:
    """An instance whose benchmark has its splits and submissions."""
    prepared(server)
    assert sweep(server) == 3
    return server


def test_two_benchmarks_share_cells_and_submissions(server, olga, stored, body) -> None:
    pia = server.organiser("pia")
    for path in ("", "/results"):
        assert server.client.get(f"{URL}{path}", headers=pia).status_code == 404
    assert put(server, pia, body()).status_code == 409
    assert server.client.get("/api/v1/benchmarks", headers=pia).json() == []
    as_viewer(server, "pia")
    assert server.client.get("/organise/benchmarks/tiny").status_code == 404
    root = server.headers(server.account("root", Role.ADMINISTRATOR))
    assert [each["slug"] for each in server.client.get("/api/v1/benchmarks", headers=root).json()] == ["tiny"]
    other = body(lambda text: text.replace('slug = "tiny"', 'slug = "other"').replace('"original", ', ""))
    assert put(server, pia, other).status_code == 200
    prepared(server)
    assert sweep(server) == 3
    score_all(server)
    with server.database.read() as session:
        assert len(list(session.scalars(select(Competition)))) == 1
    assert server.client.get(OTHER, headers=pia).json()["left"] == 0


def test_a_shared_cell_computes_the_metrics_of_both(swept, olga, body) -> None:
    score_all(swept)
    sweep(swept)
    assert swept.client.get(URL, headers=olga).json()["complete_at"] is not None, "it is looked at no more"
    more = put(swept, olga, body(lambda text: text.replace('"accuracy_gap"]', '"accuracy_gap", "mia_gap"]'))).json()
    assert (more["left"], more["complete_at"]) == (3, None)
    compute(swept)
    assert swept.client.get(URL, headers=olga).json()["left"] == 0
    rows = swept.client.get(f"{URL}/results", headers=olga).json()["cells"]["tiny"]["rows"]
    assert rows["original"]["values"]["mia_gap"]["value"] == 0.25


def test_status_counts_and_estimates_what_is_left(swept, olga, body) -> None:
    first = submissions(swept)[0]
    with swept.database.write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == first.id)).one()
        evaluation.started_at = now() - timedelta(minutes=2)
    swept.score(first.id, 0.1)
    compute(swept)
    status = swept.client.get(URL, headers=olga).json()
    (cell,) = status["progress"]
    assert (cell["split"], cell["n_done"], cell["n_runs"], cell["wanted_runs"]) == ("ready", 1, 4, 12)
    assert status["left"] == 2
    assert status["left_s"] == pytest.approx(240, abs=10)
    changed = put(swept, olga, body(lambda text: text.replace("LR = 0.05", "LR = 0.5"))).json()["changed"]
    assert "new or different: methods finetune LR=0.5" in changed
    assert sweep(swept) == 1, "the rest is kept"


def test_a_cell_that_cannot_be_prepared_says_why_and_is_tried_again(server, olga, body) -> None:
    put(server, olga, body())
    with server.database.write() as session:
        split = session.scalars(select(Split)).one()
        split.state, split.error = SplitState.FAILED.value, "the forget set would be empty"
    status = server.client.get(URL, headers=olga).json()
    assert status["failures"] == ["tiny: cannot be prepared: the forget set would be empty"]
    assert sweep(server) == 0
    with server.database.read() as session:
        assert session.scalars(select(Split.state)).one() == "failed"
    assert put(server, olga, body()).json()["progress"][0]["split"] == "pending"


def test_a_wrong_part_is_named(server, olga, body) -> None:
    for change, field in (
        (lambda wrong: wrong["cells"][0]["competition"].pop("network"), "network"),
        (lambda wrong: wrong["methods"].pop(), "methods"),
        (lambda wrong: wrong["cells"].append(wrong["cells"][0]), "cells"),
        (lambda wrong: wrong["methods"][0].update(source="def unlearning(:"), ""),
        (lambda wrong: wrong["file"].update(seeds=3), "file"),
    ):
        wrong = body()
        change(wrong)
        answer = put(server, olga, wrong)
        assert (answer.status_code, field in answer.text) == (422, True)
    of_host = body()
    of_host["cells"][0]["competition"]["dataset"] = {"name": "mnist", "options": {"root": "/etc"}}
    assert put(server, olga, of_host).status_code == 403
    with server.database.read() as session:
        assert list(session.scalars(select(Competition))) == []


def as_viewer(server: Instance, name: str) -> None:
    """Log this browser in as an account."""
    with server.database.write() as session:
        account = session.scalars(select(Account).where(Account.name == name)).one()
        token = sessions.create(session, account, user_agent="test", lifetime=timedelta(hours=1))
        server.client.cookies.set(SESSION_COOKIE, token)


def test_a_cell_is_a_hidden_competition_with_one_split(server, olga, stored) -> None:
    assert stored.status_code == 200, stored.text
    with server.database.read() as session:
        competition = session.scalars(select(Competition)).one()
        assert competition.slug == f"cell-{competition.cell_key}"
        assert [split.visibility for split in session.scalars(select(Split))] == ["public"]
    slug = competition.slug
    assert sweep(server) == 0, "its split is not there"
    root = server.headers(server.account("root", Role.ADMINISTRATOR))
    viewers = ({}, server.participant("ada"), olga, root)
    for state in ("preparing", "ready"):
        assert server.state() == state
        for headers in viewers:
            assert server.client.get("/api/v1/competitions", headers=headers).json() == []
        assert server.client.get(f"/api/v1/competitions/{slug}").status_code == 404
        assert slug not in server.client.get("/competitions").text + server.client.get("/").text
        assert server.submit(viewers[1], slug=slug).status_code == 404
        prepared(server)
    server.tick()
    assert server.state() == "ready", "it never opens"
    assert [sweep(server), sweep(server)] == [3, 0]
    assert [each.message for each in submissions(server)] == ["broken", "finetune LR=0.05", "original"]


def test_only_a_few_submissions_wait_at_a_time_and_none_after_its_hours(
    server, olga, stored, body, monkeypatch
) -> None:
    monkeypatch.setattr(benchmarks, "MAX_WAITING", 2)
    prepared(server)
    put(server, olga, body(max_hours=0))
    assert sweep(server) == 0
    put(server, olga, body(max_hours=1))
    assert [sweep(server), sweep(server)] == [2, 0]
    score_all(server)
    assert [sweep(server), len(submissions(server))] == [1, 3]


def test_results_make_the_tables_and_the_page_of_a_report(server, olga, stored, body) -> None:
    as_viewer(server, "olga")
    shown = server.client.get("/organise/benchmarks/tiny")
    assert (shown.status_code, "pairs of method and cell left" in shown.text) == (200, True)
    prepared(server)
    sweep(server)
    server.fail(submissions(server)[0].id, Fault.PARTICIPANT)
    score_all(server, 0.125)
    status = server.client.get(URL, headers=olga).json()
    assert (status["failures"], status["left"], sweep(server)) == (["tiny, broken: F: exception: it broke"], 0, 0)
    content = server.client.get(f"{URL}/results", headers=olga).json()
    rows = content["cells"]["tiny"]["rows"]
    assert rows["broken"]["failure"] == "exception: it broke"
    assert rows["original"]["values"]["f"]["value"] == 0.125
    assert rows["exact retraining"]["values"]["accuracy_gap"]["value"] == 0.5
    assert rows["original model"]["values"]["accuracy_gap"]["value"] == 0.75
    assert rows["original model"]["values"]["forget_accuracy"]["value"] == 0.5
    assert rows["original"]["submission"] == submissions(server)[2].id
    assert len(list(benchmark_tables(content))) > 1
    assert "/organise/benchmarks/tiny" in server.client.get("/organise/benchmarks").text
    shown = server.client.get("/organise/benchmarks/tiny").text
    for words in ("tiny, broken: F: exception: it broke", "finetune LR=0.05", "exact retraining"):
        assert words in shown
    figures = "/organise/benchmarks/tiny/figures"
    assert "original model" in server.client.get(f"{figures}/pareto.json").text
    strips = server.client.get(f"{figures}/examples.json?cell=0").json()
    assert strips["encoding"]["x"]["scale"]["domain"] == [0, 2]  # ceil(ln(4 - 1)): no example lies beyond
    assert all(row["value"] <= 2 for row in strips["data"]["values"])
    assert server.client.get(f"{figures}/pareto.json?cell=7").status_code == 404
    again = put(server, olga, body(retry=True)).json()
    assert (again["left"], again["failures"], len(submissions(server))) == (1, [], 3)
