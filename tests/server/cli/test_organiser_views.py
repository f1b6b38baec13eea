"""What organisers look at from the command line."""

from sqlalchemy import update

from lethe.competition.visibility import Visibility
from server.models.competition import Split
from server.models.submission import Fault
from tests.server.cli.conftest import Run, answer
from tests.support.instance import Instance


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
    decision = f"/competitions/digits/finals/{submission}/decision"
    assert f"lethe api POST {decision} -f decision=exclude|run-again|use-next-choice -f reason=WHY" in shown
    answer(lethe("api", "POST", decision, "-f", "decision=exclude", "-f", "reason=it divides by zero"))
    decided = lethe("competition", "status", "digits").stdout
    assert "provisional" in decided
    assert "decision needed" not in decided


def test_status_warns_where_whoever_retrains_is_first(server: Instance, lethe: Run, submission: str) -> None:
    assert "warning" not in lethe("competition", "status", "digits").stdout
    with server.database.write() as session:
        session.execute(update(Split).values(retraining_time_s=1.0, retraining_cpu_s=0.5, start_cpu_s=0.02))
    shown = " ".join(lethe("competition", "status", "digits").stdout.split())
    assert "warning public split: retraining from scratch fits into a run's limit" in shown


def test_status_names_teams_with_the_same_file(server: Instance, lethe: Run, submission: str) -> None:
    server.submit(server.participant("bob"))
    assert answer(lethe("competition", "status", "digits", "--json"))["same_files"] == [["ada", "bob"]]
    assert "ada, bob" in lethe("competition", "status", "digits").stdout


def test_rejudging_status_says_how_far_it_is(lethe: Run, submission: str) -> None:
    made = answer(lethe("rejudge", "start", "-c", "digits", "--changed", "scorer", "--reason", "a wrong cap", "--json"))
    status = answer(lethe("rejudge", "status", made["id"], "-c", "digits", "--json"))
    assert (status["author"], status["evaluations"], status["complete"]) == ("olga", {"queued": 1}, False)
    assert status["runs_done"] == 0 < status["runs"]
