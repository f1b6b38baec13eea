"""What is not shown cannot be seen: whatever a hidden value is, every answer to a team and to a visitor is the same.

A competition is asked for everything twice, by a team and by a visitor: once as it is, once after each
value that is not shown was changed in the database. No address, order, filter, page, stream or figure may tell the two
apart. So a value that has a new way out is found without being named here.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import product

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.accounts import sessions
from server.db import now
from server.leaderboard import boards
from server.metric_results.metric_results import hash_parameters
from server.models.competition import Split
from server.models.evaluation import (
    Evaluation,
    MetricResult,
    PrivateScore,
    PublicScore,
    RunLog,
    Shard,
    ShardAttempt,
    score_table,
)
from server.models.submission import Submission
from server.web import leaderboard_pages, sse
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import GOOD_CODE, Instance
from tests.support.routes import addresses

pytestmark = pytest.mark.slow

BASE = "/api/v1/competitions/digits"
QUERIES = ("", "?board=private&split=private&show=best&sort=score&limit=1", "?show=best", "?show=finals")
LADDER = '[board]\nmode = "ladder"\nstep = 0.2\n'
OPEN = (
    "[metric]\nshow_intervals = true\nshow_breakdown = true\nbootstrap_resamples = 20\n"
    '[report]\nmetrics = [{id = "f"}]\ncolumns = ["f"]\nvisible_to_participants = "all"\n'
)
SHUT = OPEN.replace('visible_to_participants = "all"', 'visible_to_participants = "none"').replace("= true", "= false")
CHANGING = re.compile(  # from one answer to the next, whatever is stored
    r'name="csrf_token" value="\w+"|data-csrf="\w+"|"instance":"\w+"|\brequest_id["=:]*\w+|id: \d+'
    r'| title="[^"]*" data-time="\w+">[^<]*</time>|nonce-[\w+/=-]+|nonce="[^"]*"'
)
# What is written and what a team may see of it: the public scores round to these on the ladder, and with five decimals.
SCORES = {"ada": (0.18301, 0.12502, 0.06703), "bob": (0.19204,)}


@dataclass(frozen=True)
class Played:
    """A competition with scores. callers: headers of each who asks; names: to fill addresses with."""

    server: Instance
    callers: dict[str, dict[str, str]]
    names: dict[str, str]

    def answers(self) -> dict[str, str]:
        """Return what everybody is answered, by who asks what."""
        boards._kept.clear()
        return dict(self._answers())

    def _answers(self) -> Iterator[tuple[str, str]]:
        for address, name in product(self._addresses(), self.callers):
            for query in QUERIES if "submissions" in address else QUERIES[:2]:
                answer = self.server.client.get(address + query, headers=self.callers[name], follow_redirects=False)
                assert answer.status_code < 500, (address, query, answer.text)
                yield f"{name}: {address}{query}", f"{answer.status_code} {CHANGING.sub('', answer.text)}"
                if answer.status_code in (401, 403):
                    break

    def _addresses(self) -> list[str]:
        shows = ("competitions", "submissions", "compar", "leaderboard", "finals", "metrics")
        every = [address for _get, address in addresses(self.names, frozenset({"GET"}))]
        shown = [one for one in every if any(word in one for word in shows)]
        return ["/", *(one for one in shown if "organise" not in one and one != "/metrics")]

    def change(self, act: Callable[[Session], None]) -> None:
        with self.server.database.write() as session:
            act(session)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let figures end at one moment, and streams after one part."""
    at = now()
    monkeypatch.setattr(leaderboard_pages, "now", lambda: at)
    for name in ("POLL_INTERVAL_S", "MAX_STREAM_S"):
        monkeypatch.setattr(sse, name, 0.01)  # a stream sends the part as it is, and ends


def play(server: Instance, extra: str) -> Played:
    server.competition(extra=extra)
    accounts = {name: server.account(name) for name in SCORES}
    callers = {name: server.headers(account) for name, account in accounts.items()}
    for name, account in accounts.items():
        with server.database.write() as session:
            cookie = sessions.create(session, account, user_agent="test", lifetime=timedelta(days=1))
        callers[name] |= {"Cookie": f"{SESSION_COOKIE}={cookie}"}
    ids = []
    for name, values in SCORES.items():
        for value in values:
            ids.append(server.submit(callers[name], GOOD_CODE + f"# {name} {value}\n".encode()).json()["id"])
            server.score(ids[-1], value)
    with server.database.write() as session:
        for score in session.scalars(select(PublicScore)):
            _fill(session, score)
        team = session.get_one(Submission, ids[0]).team_id
    names = {"slug": "digits", "submission_id": ids[0], "team_id": team, "name": "ada", "other": ids[1]}
    return Played(server, {"ada": callers["ada"], "visitor": {}}, names)


def _fill(session: Session, score: PublicScore) -> None:
    evaluation = session.get_one(Evaluation, score.evaluation_id)
    score.details = {"run_wall_time_s": 0.31, "epsilon_percentiles": {str(level): 1.5 for level in (5, 25, 50, 75, 95)}}
    score.forgetting_quality, score.interval_low, score.interval_high = 0.5, 0.01, 0.3
    evaluation.finished_at = score.computed_at = now().replace(second=20) - timedelta(minutes=10)
    for shard in session.scalars(select(Shard).where(Shard.evaluation_id == evaluation.id)):
        shard.kind, shard.wall_time_s, shard.result_sha256 = "runs", 3.0, "0" * 64
        began, ended = (evaluation.finished_at - timedelta(seconds=late) for late in (90, 5))
        times = {"started_at": began, "ended_at": ended, "outcome": "done"}
        session.add(ShardAttempt(shard_id=shard.id, worker="w", attempt=1, **times))
    of_the_report = session.scalars(select(MetricResult).where(MetricResult.evaluation_id == evaluation.id)).all()
    for row in of_the_report:
        row.value, row.computed_at, row.metric_version = 0.5, now(), 1


def change_unseen(session: Session) -> None:
    """Change everything that no team sees, and the digits and seconds of what it sees."""
    for number, score in enumerate(session.scalars(select(PublicScore).order_by(PublicScore.evaluation_id)), start=1):
        score.final_score += 1e-7 * (-1) ** number * number
        score.forgetting_quality += 1e-5 * number
        score.interval_low = (score.interval_low or 0.0) + 1e-7
        score.details = {
            **score.details,
            "run_wall_time_s": 0.22 + 0.05 * number,
            "epsilon": 3.1 * number,
            "epsilon_percentiles": {str(level): 1.5 + 1e-5 * number for level in (5, 25, 50, 75, 95)},
        }
        score.epsilon, score.tied_group = bytes([number] * 8), None
        score.computed_at += timedelta(seconds=number)
        evaluation = session.get_one(Evaluation, score.evaluation_id)
        assert evaluation.finished_at
        evaluation.finished_at += timedelta(seconds=number)
        session.add(RunLog(evaluation_id=evaluation.id, run=0, on_public_sample=False, text=f"seen {number}"))
    for shard in session.scalars(select(Shard)):
        shard.wall_time_s *= 10
    for number, attempt in enumerate(session.scalars(select(ShardAttempt)), start=1):
        attempt.worker, attempt.detail = f"host {number}", "it said something"
        attempt.ended_at = attempt.ended_at and attempt.ended_at + timedelta(seconds=number)
    for row in session.scalars(select(MetricResult)):
        row.value = (row.value or 0.0) + 3e-5
        row.table = {"cells": [1.0, 2.0]}


def change_scores_within_the_step(session: Session) -> None:
    """Change scores by so little that the ladder stays, but who is best of a team's own is another."""
    values = iter((0.16, 0.171, 0.199, 0.185))
    for submission in session.scalars(select(Submission).order_by(Submission.received_at)):
        score = session.scalars(select(PublicScore).where(PublicScore.submission_id == submission.id)).one()
        score.final_score, score.forgetting_quality = next(values), 0.9
        score.retain_ratio, score.interval_low, score.interval_high = 0.7, 0.02, 0.9
        score.details = score.details | {"epsilon_percentiles": {"50": 9.0}}


def change_metrics(session: Session) -> None:
    for number, row in enumerate(session.scalars(select(MetricResult))):
        row.value, row.oracle, row.notes = 0.125 * number, 0.9, [f"{number} are left out"]


def change_private(session: Session) -> None:
    """Let every submission have a private score, with its metrics, before the reveal."""
    private = session.scalars(select(Split).where(Split.visibility == Visibility.PRIVATE.value)).one()
    private.oracle = {"final_score": 0.17171}
    for number, submission in enumerate(session.scalars(select(Submission).order_by(Submission.received_at))):
        evaluation = Evaluation(submission_id=submission.id, split_id=private.id, scorer_version="1", n_runs=4)
        evaluation.state, evaluation.error = "scored", {"message": f"broke at {number}"}
        session.add(evaluation)
        session.flush()
        values = dict.fromkeys(("final_score", "forgetting_quality", "retain_ratio", "test_ratio"), 0.1 * number)
        keys = {"evaluation_id": evaluation.id, "submission_id": submission.id, "scorer_version": "1"}
        assert score_table(private.visibility) is PrivateScore
        session.add(PrivateScore(**keys, **values, details={}))
        found = {"metric_id": "f", "parameters_sha256": hash_parameters({}), "value": 0.1 * number, "metric_version": 1}
        session.add(MetricResult(evaluation_id=evaluation.id, computed_at=now(), **found))


@pytest.mark.parametrize(
    ("extra", "changes"),
    [
        (OPEN, (change_unseen, change_private)),
        (LADDER + OPEN, (change_unseen, change_scores_within_the_step, change_metrics)),
        (SHUT, (change_metrics,)),
    ],
    ids=["open", "ladder", "closed"],
)
def test_no_answer_depends_on_what_is_not_shown(server, still, extra, changes):
    """One change after the other: to ask for everything takes longer than to play."""
    played = play(server, extra)
    before = played.answers()
    for change in changes:
        played.change(change)
        after = played.answers()
        assert [where for where in before if before[where] != after[where]] == [], change.__name__
    if extra == OPEN:
        played.change(change_metrics)
        played.change(change_scores_within_the_step)
        differ = {where for where, answer in played.answers().items() if before[where] != answer}
        own = f"/submissions/{played.names['submission_id']}"
        visitor = {f"visitor: {where}/leaderboard" for where in (BASE, "/competitions/digits")}
        shown = (f"/api/v1{own}", f"/api/v1{own}/metrics", f"{own}/events")
        shown += ("/competitions/digits/compare", "/competitions/digits/submissions?show=best")
        assert visitor | {f"ada: {where}" for where in shown} <= differ, "what is shown does change the answers"
