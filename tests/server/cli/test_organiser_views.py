"""What organisers and administrators look at from the command line."""

import pytest
from sqlalchemy import select, update

from lethe.competition.visibility import Visibility
from server.models.account import Role
from server.models.competition import Competition, Split
from server.models.metric_result import MetricResult
from server.models.submission import Fault
from tests.server.cli.conftest import Run, answer, told, use
from tests.support.instance import Instance


@pytest.fixture
def submission(server: Instance, monkeypatch: pytest.MonkeyPatch) -> str:
    """Log an organiser in. Return the id of a scored submission to their competition."""
    server.competition(organiser=use(server, monkeypatch, "olga", Role.ORGANISER))
    made = str(server.submit(server.participant("ada")).json()["id"])
    server.score(made, 0.5)
    return made


def test_overview_names_state_queue_and_warnings(server: Instance, lethe: Run, submission: str) -> None:
    server.submit(server.participant("bob"))
    shown = lethe("competition", "overview", "digits").stdout
    assert "no worker has been heard of" in " ".join(shown.split())
    assert "1 scored" in shown
    assert answer(lethe("competition", "overview", "--json"))["competitions"] == {"digits": "open"}


def test_status_shows_a_failed_final_until_it_is_decided_on(server: Instance, lethe: Run, submission: str) -> None:
    assert "decision needed" not in lethe("competition", "status", "digits").stdout
    lethe("competition", "close", "digits")
    server.tick()
    server.fail(submission, Fault.PARTICIPANT, visibility=Visibility.PRIVATE)
    server.tick()
    shown = " ".join(lethe("competition", "status", "digits").stdout.split())
    assert f"decision needed: final {submission} of ada failed:" in shown.replace(
        "decision needed ", "decision needed: "
    )
    assert f"lethe competition decide digits {submission} exclude|run-again|use-next-choice" in shown
    decided = lethe("competition", "decide", "digits", submission, "exclude", "--reason", "it divides by zero")
    assert "provisional" in decided.stdout
    assert "decision needed" not in decided.stdout


def test_status_warns_where_whoever_retrains_is_first(server: Instance, lethe: Run, submission: str) -> None:
    assert "warning" not in lethe("competition", "status", "digits").stdout
    with server.database.write() as session:
        session.execute(update(Split).values(retraining_time_s=1.0, retraining_cpu_s=0.5, start_cpu_s=0.02))
    shown = " ".join(lethe("competition", "status", "digits").stdout.split())
    assert "warning public split: retraining from scratch fits into a run's limit" in shown


def test_activity_lists_every_hour_of_the_day(lethe: Run, submission: str) -> None:
    assert len(answer(lethe("competition", "activity", "digits", "--json"))["runs_by_hour"]) == 25
    assert "No failures." in lethe("competition", "activity").stdout


def test_people_and_submissions_are_listed(lethe: Run, submission: str) -> None:
    people = answer(lethe("competition", "people", "digits", "--json"))
    assert (people["organisers"], people["teams"][0]["name"]) == (["olga"], "ada")
    assert submission in lethe("competition", "submissions", "digits", "--stage", "scored").stdout
    assert answer(lethe("competition", "submissions", "digits", "--stage", "failed", "--json")) == []


def test_analysis_shows_the_parts_of_a_score(lethe: Run, submission: str) -> None:
    shown = lethe("competition", "analysis", "digits", submission).stdout
    assert "0.50000" in shown
    assert "forgetting quality" in shown
    refused = lethe("competition", "analysis", "digits", submission, "--split", "private")
    assert "has no private scores before it closes" in told(refused)


def test_analysis_names_other_teams_with_the_same_file(server: Instance, lethe: Run, submission: str) -> None:
    assert "same file" not in lethe("competition", "analysis", "digits", submission).stdout
    server.submit(server.participant("bob"))
    assert answer(lethe("competition", "analysis", "digits", submission, "--json"))["same_file_of"] == ["bob"]
    assert "same file sent by" in lethe("competition", "analysis", "digits", submission).stdout
    listed = answer(lethe("competition", "submissions", "digits", "--json"))
    assert sorted(row["same_file_of"] for row in listed) == [["ada"], ["bob"]]
    assert {"same", "file", "as"} <= set(lethe("competition", "submissions", "digits").stdout.split())
    assert answer(lethe("competition", "status", "digits", "--json"))["same_files"] == [["ada", "bob"]]
    assert "ada, bob" in lethe("competition", "status", "digits").stdout


def test_compare_suggests_and_refuses_unpaired_scores(server: Instance, lethe: Run, submission: str) -> None:
    other = str(server.submit(server.participant("bob")).json()["id"])
    server.score(other, 0.4)
    suggested = answer(lethe("competition", "compare", "digits", submission, "--json"))
    assert [row["id"] for row in suggested] == [other]
    assert "has no replicates" in told(lethe("competition", "compare", "digits", submission, other))


def test_audit_log_is_shown_and_its_actions_listed(lethe: Run, submission: str) -> None:
    events = answer(lethe("competition", "audit", "digits", "--action", "submission.received", "--json"))
    assert [event["subject"] for event in events] == [submission]
    assert "submission.received" in answer(lethe("competition", "audit", "digits", "--actions", "--json"))


def test_accounts_are_for_administrators(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server, monkeypatch, "olga", Role.ORGANISER)
    assert "Only administrators" in told(lethe("accounts"))
    use(server, monkeypatch, "adam", Role.ADMINISTRATOR)
    assert [row["name"] for row in answer(lethe("accounts", "--role", "organiser", "--json"))] == ["olga"]


def test_rejudging_status_says_how_far_it_is(lethe: Run, submission: str) -> None:
    made = answer(lethe("rejudge", "start", "-c", "digits", "--changed", "scorer", "--reason", "a wrong cap", "--json"))
    status = answer(lethe("rejudge", "status", made["id"], "-c", "digits", "--json"))
    assert (status["author"], status["evaluations"], status["complete"]) == ("olga", {"queued": 1}, False)
    assert status["runs_done"] == 0 < status["runs"]


def test_recompute_asks_for_the_metrics_of_the_report(server: Instance, lethe: Run, submission: str) -> None:
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": {"metrics": [{"id": "klom"}]}}
    assert answer(lethe("metrics", "recompute", "-c", "digits", "--json")) == {
        "competition": "digits",
        "evaluations": 1,
    }
    with server.database.read() as session:
        assert [row.metric_id for row in session.scalars(select(MetricResult))] == ["klom"]
    assert "metrics of 0 evaluations" in lethe("metrics", "recompute", "-c", "digits").stdout


def test_metrics_without_a_word_is_the_catalogue(lethe: Run) -> None:
    assert [entry["id"] for entry in answer(lethe("metrics", "klom", "--json"))] == ["klom"]
    assert len(answer(lethe("metrics", "--json"))) > 40
    assert "recompute" in lethe("metrics", "--help").stdout
