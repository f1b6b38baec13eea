"""Metrics beside the score: asked for with the score, shown as the organiser allows, recomputed on request."""

from dataclasses import replace

import pytest
from sqlalchemy import Select, select

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
from tests.support.metric_results import BASE, REPORT, compute, scored


def auth_headers(server: Instance, name: str) -> dict[str, str]:
    with server.database.read() as session:
        return server.headers(session.scalars(select(Account).where(Account.name == name)).one())


def ada(server: Instance) -> dict[str, str]:
    return auth_headers(server, "ada")


def olga(server: Instance) -> dict[str, str]:
    return auth_headers(server, "of-digits")


def test_catalogue_names_every_metric_with_its_source(server: Instance) -> None:
    found = {entry["id"]: entry for entry in server.client.get("/api/v1/metrics").json()}
    assert len(found) >= 40
    assert all(entry["source"] and entry["formula"] for entry in found.values())
    assert found["klom"]["direction"] == "lower"


def test_score_asks_for_the_metrics_of_the_report(server: Instance) -> None:
    submission = scored(server)
    answer = server.client.get(f"/api/v1/submissions/{submission}/metrics", headers=ada(server)).json()
    assert [(each["id"], each["waiting"], each["value"]) for each in answer["metrics"]] == [
        ("accuracy_gap", True, None),
        ("klom", True, None),
    ]


def test_team_sees_rounded_values_without_tables(server: Instance) -> None:
    submission = scored(server)
    compute(server, submission)
    (first, _second) = server.client.get(f"/api/v1/submissions/{submission}/metrics", headers=ada(server)).json()[
        "metrics"
    ]
    assert (first["value"], first["oracle"], first["original"], first["table"]) == (0.123, 0.012, 0.3, {})


def test_organiser_sees_all_digits(server: Instance) -> None:
    submission = scored(server, visible_to_participants="none")
    compute(server, submission)
    organiser = olga(server)
    answer = server.client.get(f"/api/v1/submissions/{submission}/metrics", headers=organiser).json()
    assert answer["metrics"][0]["value"] == 0.123456
    whole = server.client.get(f"{BASE}/metrics", headers=organiser).json()
    assert whole["submissions"] == {submission: {"accuracy_gap": 0.123456, "klom": 0.123456}}


@pytest.mark.parametrize(("visible", "split"), [("none", "public"), ("public", "private"), ("all", "private")])
def test_team_does_not_see_what_is_not_opened(server: Instance, visible: str, split: str) -> None:
    submission = scored(server, visible_to_participants=visible)
    answer = server.client.get(f"/api/v1/submissions/{submission}/metrics?split={split}", headers=ada(server))
    assert answer.status_code == 404


def test_recompute_takes_only_stale_rows(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    submission = scored(server)
    compute(server, submission)
    organiser = olga(server)
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


def test_recording_twice_changes_nothing(server: Instance) -> None:
    submission = scored(server)
    compute(server, submission, 0.1)
    compute(server, submission, 0.9)
    answer = server.client.get(f"/api/v1/submissions/{submission}/metrics", headers=ada(server)).json()
    assert answer["metrics"][0]["value"] == 0.1


def test_metrics_of_old_scores_are_asked_for_by_recompute(server: Instance) -> None:
    submission = scored(server, metrics=[])
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": REPORT}
    answer = server.client.post(f"{BASE}/metrics/recompute", headers=olga(server), json={"only_stale": True})
    assert answer.json() == {"evaluations": 1}
    with server.database.read() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
        assert [each.metric_id for each in metric_results.waiting(session, evaluation.id)] == ["accuracy_gap", "klom"]
        assert metric_results.of_competition(session, competition, Visibility.PUBLIC, ["klom"]) == {}


def of_metrics() -> Select[tuple[Disclosure]]:
    """What was told beside the bit that a score is unconfirmed, or is not."""
    return select(Disclosure).where(Disclosure.bits != BITS_OF_A_CONFIRMATION)


def test_values_shown_to_a_team_count_in_its_leak_budget(server: Instance) -> None:
    submission = scored(server)
    compute(server, submission)
    compute(server, submission)
    with server.database.read() as session:
        assert [row.bits for row in session.scalars(of_metrics())] == [20.0]


def test_values_for_organisers_alone_do_not_count(server: Instance) -> None:
    compute(server, scored(server, visible_to_participants="none"))
    with server.database.read() as session:
        assert session.scalars(of_metrics()).all() == []


def show_to_teams(server: Instance, visible: str) -> None:
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": REPORT | {"visible_to_participants": visible}}


def bits_told(server: Instance) -> list[float]:
    with server.database.read() as session:
        return [row.bits for row in session.scalars(of_metrics().order_by(Disclosure.id))]


def compute_newer_version(server: Instance, submission: str, value: float) -> None:
    with server.database.write() as session:
        metric_results.metric_result_repository.ask_again(
            session, [row.id for row in session.scalars(select(MetricResult))], at=now()
        )
    compute(server, submission, value)


def test_values_opened_later_count_for_no_team(server: Instance) -> None:
    first = scored(server, visible_to_participants="none")
    compute(server, first)
    show_to_teams(server, "public")
    shown = server.client.get(f"/api/v1/submissions/{first}/metrics", headers=ada(server)).json()
    assert [each["value"] for each in shown["metrics"]] == [0.123, 0.123]
    assert bits_told(server) == [], "the organiser opened them; the team asked for nothing"
    compute_newer_version(server, first, 0.2)
    assert bits_told(server) == []
    second = server.submit(ada(server), GOOD_CODE + b"\n# another\n").json()["id"]
    server.score(second, 0.6)
    compute(server, second)
    assert bits_told(server) == [20.0], "what is computed from now on counts"


def test_newer_version_of_a_metric_counts_for_no_team(server: Instance) -> None:
    submission = scored(server)
    compute(server, submission)
    compute_newer_version(server, submission, 0.2)
    shown = server.client.get(f"/api/v1/submissions/{submission}/metrics", headers=ada(server)).json()
    assert shown["metrics"][0]["value"] == 0.2
    assert bits_told(server) == [20.0]
