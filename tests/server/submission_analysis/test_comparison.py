"""Submissions side by side, and what plain numbers of several tell."""

from dataclasses import dataclass

import numpy as np
import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, NotFound
from server.competitions import competitions
from server.models.competition import Competition, Team
from server.models.evaluation import PublicScore
from server.submission_analysis import comparison
from server.submission_analysis.comparison import SubmissionComparison
from tests.support.instance import Instance
from tests.support.scores import add_metric, add_team, scored

REPORT = {
    "metrics": [{"id": "umia"}, {"id": "klom", "bins": 10}, {"id": "retdev"}],
    "visible_to_participants": "public",
}
SHOWN_TO_ALL = REPORT | {"visible_to_participants": "all"}
EPSILONS = ([3.0, 0.1, 0.2, 0.4], [1.5, 0.2, 0.3, 0.1], [2.0, 0.4, 0.3, 0.4])


@dataclass
class Made:
    """A competition with three submissions of ada's and one of bob's."""

    server: Instance
    competition: Competition
    ada: Team
    own: list[str]
    bobs: str

    def compare(
        self, ids: list[str], *, is_organiser: bool, split: Visibility = Visibility.PUBLIC
    ) -> SubmissionComparison:
        with self.server.database.read() as session:
            competition = session.get_one(Competition, self.competition.id)
            team = session.get_one(Team, self.ada.id)
            return comparison.compare(session, competition, split, ids, team=team, is_organiser=is_organiser)


def made(server: Instance) -> Made:
    competition = server.competition()
    with server.database.write() as session:
        stored = session.get_one(Competition, competition.id)
        stored.config = stored.config | {"report": REPORT, "n_models": 64}
        public = competitions.get_split(session, stored, Visibility.PUBLIC)
        public.oracle = {"final_score": 0.2}
        ada, bob = add_team(session, stored, "ada"), add_team(session, stored, "bob")
        own = []
        for place, epsilon in enumerate(EPSILONS):
            one = scored(session, ada, public, 0.1 + place / 100)
            add_metric(session, one, "umia", 0.51239 + place / 10, interval_low=0.50001, interval_high=0.60009)
            add_metric(session, one, "klom", 9.0 - place)
            row = session.scalars(select(PublicScore).where(PublicScore.submission_id == one.id)).one()
            row.epsilon = np.array(epsilon, "<f4").tobytes()
            own.append(one.id)
        bobs = scored(session, bob, public, 0.3).id
        return Made(server, competition, ada, own, bobs)


def test_organiser_sees_every_value_beside_its_references(both: Instance) -> None:
    found = (one := made(both)).compare([one.own[0], one.bobs], is_organiser=True)
    assert [metric.key for metric in found.metrics] == ["score", "umia", "klom bins=10", "retdev"]
    assert [(m.oracle, m.original) for m in found.metrics[:2]] == [(0.2, None), (0.01234, 3.00049)]
    first, second = found.submissions
    assert (first.team, first.values["umia"].value, first.values["umia"].interval_low) == ("ada", 0.51239, 0.50001)
    assert first.values["score"].value == 0.1
    assert first.values["klom bins=10"].value == 9.0
    assert (second.team, second.values["umia"].value) == ("bob", None)


def test_team_sees_its_own_rounded_and_no_single_examples(server: Instance) -> None:
    found = (one := made(server)).compare(one.own, is_organiser=False)
    value = found.submissions[0].values["umia"]
    assert (value.value, value.interval_low, value.interval_high) == (0.512, 0.5, 0.6)
    assert (found.metrics[1].oracle, found.metrics[1].original) == (0.012, 3.0)
    assert found.similarity is None
    assert found.hard_examples == ()
    with pytest.raises(NotFound, match="no submission"):
        one.compare([one.bobs], is_organiser=False)
    with pytest.raises(InvalidInput, match="at most 12"):
        one.compare([f"{place:016x}" for place in range(13)], is_organiser=True)
    hidden: dict[str, dict[str, object]] = {
        "report": {"report": REPORT | {"visible_to_participants": "none"}},
        "ladder": {"board": {"mode": "ladder", "step": 0.05}},  # which hides metrics with the scores
    }
    for changes in hidden.values():
        with server.database.write() as session:
            stored = session.get_one(Competition, one.competition.id)
            before, stored.config = stored.config, stored.config | changes
        with pytest.raises(NotFound, match="not shown to teams"):
            one.compare(one.own, is_organiser=False)
        assert len(one.compare(one.own, is_organiser=True).submissions) == 3
        with server.database.write() as session:
            session.get_one(Competition, one.competition.id).config = before | {"report": SHOWN_TO_ALL}
    for is_organiser in (True, False):
        with pytest.raises(NotFound):
            one.compare(one.own, is_organiser=is_organiser, split=Visibility.PRIVATE)


def test_ranks_need_three_known_values_of_both() -> None:
    values = {"a": [1.0, 2.0, 3.0, np.nan], "b": [np.nan, 1.0, 2.0, 3.0], "c": [1.0, np.nan, np.nan, np.nan]}
    found = comparison.rank_correlations(values)
    assert found is not None
    assert list(found.names) == ["a", "b"]
    assert found.rows[0] == [pytest.approx(1.0), None]
    found = comparison.rank_correlations({"a": [1.0, 2.0, 3.0], "b": [5.0, 5.0, 5.0]})
    assert found is not None
    assert found.rows[1] == [None, None], "a constant metric has no correlation"
    assert comparison.hard_examples({}, n_models=8) == []
    assert comparison.epsilon_correlations({"a": np.ones(4), "b": np.ones(5)}) is None


def test_loss_follows_the_direction() -> None:
    for direction, oracle, expected in (
        ("higher", None, -0.7),
        ("lower", None, 0.7),
        ("none", 0.5, None),
        ("towards retrained", 0.5, pytest.approx(0.2)),
        ("towards retrained", None, None),
    ):
        assert comparison.loss(0.7, direction=direction, oracle=oracle) == expected


def test_noise_keeps_a_submission_on_the_frontier() -> None:
    losses = [[0.1, 0.1], [0.2, 0.2]]
    assert comparison.on_frontier(losses, [[0.0, 0.0], [0.0, 0.0]]) == [True, False]
    assert comparison.on_frontier(losses, [[0.1, 0.1], [0.1, 0.1]]) == [True, True]
    assert comparison.standard_error(0.0, 2 * 1.959963984540054) == pytest.approx(1.0)


def test_ranks_are_spearmans_and_hard_examples_of_the_largest_clipped_mean(server: Instance) -> None:
    found = (one := made(server)).compare(one.own, is_organiser=True)
    assert found.ranks is not None
    assert list(found.ranks.names) == ["score", "umia", "klom bins=10"], "retdev has no values"
    rows = [[round(value or 0.0, 6) for value in row] for row in found.ranks.rows]
    assert rows == [[1, 1, -1], [1, 1, -1], [-1, -1, 1]]
    clip = np.ceil(np.log(63))
    mean = np.minimum(EPSILONS, clip).mean(axis=0)
    assert [hard.example for hard in found.hard_examples] == list(np.argsort(-mean))
    assert found.hard_examples[0].epsilon == pytest.approx(mean.max())
    assert found.hard_examples[0].share == pytest.approx(mean.max() / clip)
    assert found.similarity is not None
    assert found.similarity.rows[0][0] == 1.0
