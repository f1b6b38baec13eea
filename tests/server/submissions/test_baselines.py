"""[report] baselines: submitted once by the instance itself, unranked, and nobody's quota."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from lethe.methods.catalogue import method_source
from server.db import now
from server.leaderboard import boards
from server.leaderboard.ranking import RowKind
from server.models.account import Role
from server.models.competition import Competition, Membership, Team
from server.models.evaluation import Shard
from server.models.submission import Submission
from server.submissions import baselines
from server.submissions.submissions import read_code
from tests.support.instance import Instance

REPORT = '[report]\nbaselines = ["finetune", { id = "scrub", LR = 0.25 }]\n'


def sweep(instance: Instance) -> int:
    return baselines.submit_missing(instance.database, instance.storage, at=now())


def submissions(instance: Instance) -> list[Submission]:
    with instance.database.read() as session:
        return list(session.scalars(select(Submission).order_by(Submission.message)))


def teams(instance: Instance) -> list[Team]:
    with instance.database.read() as session:
        return list(session.scalars(select(Team).order_by(Team.name)))


def test_each_baseline_is_submitted_once(both: Instance) -> None:
    both.competition(extra=REPORT)
    assert [sweep(both), sweep(both)] == [2, 0]
    finetune, scrub = submissions(both)
    assert (finetune.message, scrub.message) == ("finetune", "scrub LR=0.25")
    assert read_code(both.storage, finetune) == method_source("finetune").encode()
    assert b"\nLR = 0.25" in read_code(both.storage, scrub)
    with both.database.write() as session:
        for number, team in enumerate(session.scalars(select(Team))):
            team.name = team.name_key = f"line {number}"
        for submission in session.scalars(select(Submission)):
            submission.stage, submission.error_class = "failed", "exception"
    assert sweep(both) == 0, "one that was renamed or failed is not submitted again"


def test_name_of_a_line_with_many_settings_ends_between_two_of_them(server: Instance) -> None:
    settings = "LR = 0.021, EPOCHS = 4, GAMMA = 0.97, ALPHA = 0.4142, MAX_STEPS = 1, WEIGHT_DECAY = 0.0015"
    server.competition(extra=f'[report]\nbaselines = [{{ id = "scrub", {settings} }}, "scrub"]\n')
    sweep(server)
    assert [team.name for team in teams(server)] == ["scrub", "scrub ALPHA=0.4142 EPOCHS=4 GAMMA=0.97 LR=0.021 …"]
    assert submissions(server)[1].message.endswith("MAX_STEPS=1 WEIGHT_DECAY=0.0015")


def test_two_sweeps_at_once_submit_each_baseline_once(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one comes between the look for what is missing and the transaction."""
    server.competition(extra=REPORT)
    store, others = baselines.store_content, [1]

    def overtaken(*given: object) -> object:
        if others:
            others.pop()
            assert sweep(server) == 2
        return store(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(baselines, "store_content", overtaken)
    assert sweep(server) == 0
    assert len(submissions(server)) == 2


def test_competition_that_leaves_its_state_before_the_transaction_gets_none(server, monkeypatch):
    competition, store = server.competition(extra=REPORT, state="ready"), baselines.store_content

    def overtaken(*given: object) -> object:
        with server.database.write() as session:
            session.get_one(Competition, competition.id).state = "draft"
        return store(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(baselines, "store_content", overtaken)
    assert sweep(server) == 0
    assert submissions(server) == []


def test_baselines_wait_for_ready_splits_and_end_with_it(server: Instance) -> None:
    for state in ("draft", "preparing", "closed", "final"):
        server.competition(state, extra=REPORT, state=state)
    server.competition("without")
    assert sweep(server) == 0
    server.competition("early", extra=REPORT, state="ready", opens_at=now() + timedelta(hours=1))
    assert sweep(server) == 2


def test_baselines_take_a_place_but_no_rank_quota_or_turn(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(extra=REPORT, organiser=olga, limits={"submissions_per_day": 1})
    taken = server.submit(server.participant("finetune")).json()["id"]
    assert sweep(server) == 2
    entry = server.submit(server.headers(olga))
    assert entry.status_code == 201
    with server.database.read() as session:
        assert olga.id in session.scalars(select(Membership.account_id)).all()
        assert len(session.scalars(select(Membership)).all()) == 2
        turns = {shard.team_id: shard.turn for shard in session.scalars(select(Shard))}
    found = teams(server)
    names = [(team.name, team.is_baseline) for team in found]
    assert names == [("finetune", False), ("finetune (2)", True), ("olga", False), ("scrub", True)]
    highest = max(turns[team.id] for team in found if not team.is_baseline)
    assert all(turns[team.id] > highest for team in found if team.is_baseline), "they stand last in the queue"
    scores = {"finetune": 0.2, "scrub LR=0.25": 0.15}
    for submission in submissions(server):
        if submission.id != taken:
            server.score(submission.id, scores.get(submission.message, 0.1))
    with server.database.read() as session:
        board = boards.whole_board(session, competition, Visibility.PUBLIC)
    assert [(row.rank, row.entry.kind, row.entry.team) for row in board.rows] == [
        (None, RowKind.BASELINE, "finetune (2)"),
        (None, RowKind.BASELINE, "scrub"),
        (1, RowKind.TEAM, "olga"),
    ]
    page = server.client.get("/competitions/digits/leaderboard").text
    assert 'title="scrub LR=0.25">scrub</a>' in page, "a line shows its settings"
