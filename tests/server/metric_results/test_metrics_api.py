"""Metrics beside the score: asked for with the score, shown as the organiser allows, recomputed on request."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metric, metrics
from server.db import now
from server.disclosure.gate import BITS_OF_A_CONFIRMATION
from server.metric_results import metric_results
from server.models.account import Account
from server.models.competition import Competition
from server.models.evaluation import Disclosure, Evaluation, MetricResult
from server.queue import COMPUTE_METRICS
from tests.support.instance import GOOD_CODE, Instance
from tests.support.scores import BASE, REPORT, compute
from tests.support.scores import scored_with_report as scored


def headers_of(server: Instance, name: str) -> dict[str, str]:
    with server.database.read() as session:
        return server.headers(session.scalars(select(Account).where(Account.name == name)).one())


def seen(server: Instance, submission: str, name: str = "ada") -> list[dict[str, Any]]:
    """Return the metrics of a submission as a person is told them."""
    answer = server.client.get(f"/api/v1/submissions/{submission}/metrics", headers=headers_of(server, name))
    return list(answer.json()["metrics"])


def test_catalogue_names_every_metric_with_its_source(server: Instance) -> None:
    found = {entry["id"]: entry for entry in server.client.get("/api/v1/metrics").json()}
    assert len(found) >= 40
    assert all(entry["source"] and entry["formula"] for entry in found.values())
    assert found["klom"]["direction"] == "lower"


def test_score_asks_for_metrics_that_its_team_sees_rounded_and_without_tables(server: Instance) -> None:
    submission = scored(server)
    shown = [(each["id"], each["waiting"], each["value"]) for each in seen(server, submission)]
    assert shown == [("accuracy_gap", True, None), ("klom", True, None)]
    compute(server, submission)
    first = seen(server, submission)[0]
    assert (first["value"], first["oracle"], first["original"], first["table"]) == (0.123, 0.012, 0.3, {})
    assert bits_told(server) == [20.0]
    compute(server, submission, 0.9)
    assert seen(server, submission)[0]["value"] == 0.123, "recorded twice, it stays"
    assert bits_told(server) == [20.0]
    compute_newer_version(server, submission, 0.2)
    assert seen(server, submission)[0]["value"] == 0.2
    assert bits_told(server) == [20.0], "a newer version of a metric counts for no team"


def test_organiser_sees_all_digits_which_count_for_no_team(server: Instance) -> None:
    submission = scored(server, visible_to_participants="none")
    compute(server, submission)
    assert seen(server, submission, "of-digits")[0]["value"] == 0.123456
    whole = server.client.get(f"{BASE}/metrics", headers=headers_of(server, "of-digits")).json()
    assert whole["submissions"] == {submission: {"accuracy_gap": 0.123456, "klom": 0.123456}}
    assert bits_told(server) == []


@pytest.mark.parametrize(("visible", "split"), [("none", "public"), ("public", "private"), ("all", "private")])
def test_team_does_not_see_what_is_not_opened(server: Instance, visible: str, split: str) -> None:
    submission = scored(server, visible_to_participants=visible)
    answer = server.client.get(
        f"/api/v1/submissions/{submission}/metrics?split={split}", headers=headers_of(server, "ada")
    )
    assert answer.status_code == 404


def test_recompute_takes_only_stale_rows(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    submission = scored(server)
    compute(server, submission)
    organiser = headers_of(server, "of-digits")
    sent: list[str] = []
    monkeypatch.setattr("server.queue.send", lambda task, *args, **more: not sent.append(task))
    stale = {"only_stale": True}
    assert server.client.post(f"{BASE}/metrics/recompute", headers=organiser, json=stale).json() == {"evaluations": 0}
    with server.database.write() as session:
        session.scalars(select(MetricResult)).first().metric_version = 0  # type: ignore[union-attr]
    assert server.client.post(f"{BASE}/metrics/recompute", headers=organiser, json=stale).json() == {"evaluations": 1}
    assert sent == [COMPUTE_METRICS]
    with server.database.read() as session:
        assert len([row for row in session.scalars(select(MetricResult)) if row.computed_at is None]) == 1


def test_values_of_an_older_version_are_computed_again(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    compute(server, scored(server))
    newer = dict(metrics()) | {"klom": replace(metric("klom"), version=2)}
    with server.database.write() as session:
        assert metric_results.recompute_outdated(session) == [], "every value is of its metric's version"
    monkeypatch.setattr(metric_results, "metrics", lambda: newer)
    with server.database.write() as session:
        assert metric_results.recompute_outdated(session) == [], "an older process may still be at it"
        for row in session.scalars(select(MetricResult)):
            row.computed_at = now() - 2 * metric_results.UPGRADE_WINDOW
    with server.database.write() as session:
        (evaluation,) = metric_results.recompute_outdated(session)
        assert [each.metric_id for each in metric_results.waiting(session, evaluation)] == ["klom"]
        assert metric_results.recompute_outdated(session) == []


def test_metrics_of_old_scores_are_asked_for_by_recompute(server: Instance) -> None:
    submission = scored(server, metrics=[])
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": REPORT}
    answer = server.client.post(
        f"{BASE}/metrics/recompute", headers=headers_of(server, "of-digits"), json={"only_stale": True}
    )
    assert answer.json() == {"evaluations": 1}
    with server.database.read() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
        assert [each.metric_id for each in metric_results.waiting(session, evaluation.id)] == ["accuracy_gap", "klom"]
        assert metric_results.of_competition(session, competition, Visibility.PUBLIC, ["klom"]) == {}


def bits_told(server: Instance) -> list[float]:
    """Return what was told beside the bit that a score is unconfirmed, or is not."""
    with server.database.read() as session:
        told = select(Disclosure.bits).where(Disclosure.bits != BITS_OF_A_CONFIRMATION).order_by(Disclosure.id)
        return list(session.scalars(told))


def compute_newer_version(server: Instance, submission: str, value: float) -> None:
    with server.database.write() as session:
        metric_results.metric_result_repository.ask_again(
            session, [row.id for row in session.scalars(select(MetricResult))], at=now()
        )
    compute(server, submission, value)


def test_values_opened_later_count_for_no_team(server: Instance) -> None:
    first = scored(server, visible_to_participants="none")
    compute(server, first)
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": REPORT}
    assert [each["value"] for each in seen(server, first)] == [0.123, 0.123]
    assert bits_told(server) == [], "the organiser opened them; the team asked for nothing"
    compute_newer_version(server, first, 0.2)
    assert bits_told(server) == []
    second = server.submit(headers_of(server, "ada"), GOOD_CODE + b"\n# another\n").json()["id"]
    server.score(second, 0.6)
    compute(server, second)
    assert bits_told(server) == [20.0], "what is computed from now on counts"
