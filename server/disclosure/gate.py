"""The gate: every value of a scored submission that a team or a visitor sees is made here.

Code that runs on hidden data chooses its score, its metrics, its times and how it fails, so each of these is a message
about hidden data. This module alone knows who sees which split, what a ladder hides and how many digits are shown, and
what each value can tell, in bits. Failures' details are held to a daily budget (`server.evaluations.leak_budget`).

Only this module makes a `Shown...` value. A field of a response or of a page is of such a type, or `fields` says why
it tells nothing hidden; tests/server/disclosure fails otherwise. Organisers see exact values: they come from here too.
`shown_progress` says what is seen of runs that go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil, log2, log10
from types import SimpleNamespace
from typing import Annotated, Any, NewType

from pydantic import Field
from sqlalchemy import ColumnElement, func

from lethe.competition.run_limits import as_tenths
from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server.competitions.lifecycle import is_revealed
from server.competitions.stored_file import stored_file
from server.datetime_format import in_words
from server.db import now
from server.disclosure.shown_progress import to_minute
from server.errors import NotRevealed
from server.evaluations.paired_test import Paired
from server.models.competition import Competition, CompetitionState, Split
from server.models.evaluation import MetricResult, PrivateScore, PublicScore
from server.models.submission import Submission

ShownNumber = NewType("ShownNumber", float)
ShownMoment = NewType("ShownMoment", datetime)
ShownText = NewType("ShownText", str)
ShownTable = NewType("ShownTable", dict[str, Any])

NO_SCORE = ShownNumber(0.0)
SCORE_DIGITS = 5  # decimals of a public score
METRIC_DIGITS = 3  # decimals, and above 1 digits, of a metric, of a factor of the score, of an epsilon
BITS_OF_A_SCORE = log2(10**SCORE_DIGITS + 1)
BITS_OF_A_VALUE = 10.0  # what a metric in [0, 1] can tell
RUN_TIMES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)  # the next one above
BITS_OF_A_RUN_TIME = log2(len(RUN_TIMES_S))
BITS_OF_A_CONFIRMATION = 1.0  # that a score is unconfirmed, or is not
SEALED_BUT_COMPUTED = frozenset({CompetitionState.CLOSED.value, CompetitionState.PROVISIONAL.value})
FAILURE_FIELDS = ("message", "exception_type", "file", "line", "bits", "remaining_bits", "renews_at", "withheld")


# Who sees which split


def may_see_private(competition: Competition, *, organiser: bool) -> bool:
    """Return whether private scores may be shown: to everybody once revealed, to organisers once computed."""
    return is_revealed(competition) or (organiser and competition.state in SEALED_BUT_COMPUTED)


def sealed(competition: Competition) -> NotRevealed:
    """Return the refusal of private scores that the reader may not see yet: it says when they are revealed."""
    ends = "closed" if competition.closes_at <= now() else "closes"
    return NotRevealed(
        f"The private scores of {competition.slug} are sealed: its organisers reveal them after the close. "
        f"The competition {ends} on {in_words(competition.closes_at)}."
    )


def shows_ladder(competition: Competition, visibility: Visibility = Visibility.PUBLIC) -> bool:
    """Return whether scores of this split are shown on the ladder only: public ones, until the reveal."""
    on_ladder = stored_file(competition).board.mode == "ladder"
    return visibility is Visibility.PUBLIC and on_ladder and not is_revealed(competition)


def shows_metrics(competition: Competition, visibility: Visibility) -> bool:
    """Return whether teams see metrics of a split: as the organisers chose, never where a ladder hides the score."""
    allowed = stored_file(competition).report.visible_to_participants
    if visibility is Visibility.PUBLIC:
        return allowed in ("public", "all") and not shows_ladder(competition)
    return allowed == "all" and is_revealed(competition)


def check_metrics(competition: Competition, visibility: Visibility, *, organiser: bool) -> None:
    """Raise NotFound for metrics of a split that the reader may not see."""
    if organiser:
        check_computed(competition, visibility)
    elif not shows_metrics(competition, visibility):
        raise NotFound(f"The metrics of the {visibility.value} split are not shown to teams")


def check_computed(competition: Competition, visibility: Visibility) -> None:
    """Raise NotFound for the private split of a competition that has not closed: its organisers see it then."""
    if visibility is Visibility.PRIVATE and not may_see_private(competition, organiser=True):
        raise NotFound(f"{competition.slug} has no private scores before it closes")


def receipts_shown(competition: Competition, *, organiser: bool) -> list[Visibility]:
    """Return the splits whose receipts may be shown: of a ladder and of the private split, to teams once revealed."""
    if shows_exactly(competition, organiser=organiser):
        return [Visibility.PUBLIC, Visibility.PRIVATE]
    return [] if shows_ladder(competition) else [Visibility.PUBLIC]


def shows_exactly(competition: Competition, *, organiser: bool) -> bool:
    """Return whether the reader sees every bit of a score, and hashes of results that anybody could guess at."""
    return organiser or is_revealed(competition)


# Numbers


def show_score(value: float, visibility: Visibility = Visibility.PUBLIC) -> ShownNumber:
    """Return a score as a board shows it and ranks by it. Private ones are exact: they are shown once all is over."""
    return ShownNumber(round(value, SCORE_DIGITS) if visibility is Visibility.PUBLIC else value)


def score_order(column: Any) -> ColumnElement[float]:
    """Return what SQL sorts public scores by: no further digit than is shown."""
    return func.round(column * 10**SCORE_DIGITS)


def show_metric(value: float | None, *, exact: bool) -> ShownNumber | None:
    """Return a metric's value. exact: for organisers."""
    return None if value is None else ShownNumber(value) if exact else _rounded(value)


def get_oracle_score(split: Split | None) -> ShownNumber | None:
    """Return the exact-retraining oracle's score on a prepared split. No submission changes it."""
    oracle = split.oracle if split else None
    return show_score(float(oracle["final_score"])) if oracle and "final_score" in oracle else None


def get_original_score(split: Split | None) -> ShownNumber | None:
    """Return the original model's score on a prepared split: what an unchanged model scores. None if not stored."""
    original = _original_of(split.oracle if split else None)
    return show_score(float(original["score"]["value"])) if original else None


def _original_of(oracle: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the original model's `score` and `f` with the ratios, as a split keeps them beside the oracle's."""
    original: Mapping[str, Any] = ((oracle or {}).get("references") or {}).get("original") or {}
    return original if {"score", "f"} <= set(original) and "value" in original["score"] else None


def share_of(value: ShownNumber | None, oracle: float | None) -> ShownNumber | None:
    """Return a shown score as a share of exact retraining's; None where there is none to compare with."""
    return ShownNumber(value / oracle) if value is not None and oracle else None


def show_run_time(details: Mapping[str, Any]) -> tuple[ShownNumber, ShownNumber | None] | None:
    """Return the median run's time by tenths of its limit, and the limit; without one, by a few steps."""
    if limited := details.get("run_time"):
        return ShownNumber(as_tenths(limited["s"], limited["limit_s"])), ShownNumber(limited["limit_s"])
    if not (seconds := details.get("run_wall_time_s")):
        return None
    return ShownNumber(next((level for level in RUN_TIMES_S if seconds <= level), RUN_TIMES_S[-1])), None


# Scores


@dataclass(frozen=True)
class Breakdown:
    """The three factors of a score, and how the epsilons of the forget examples are spread.

    epsilon_percentiles: levels 0, 5, 25, 50, 75, 95, 100; empty where they were not stored. spread_ratio,
    share_above: see `lethe.metrics.scoring.explanation`; None where they were not stored.
    """

    forgetting_quality: ShownNumber
    retain_ratio: ShownNumber
    test_ratio: ShownNumber
    epsilon_percentiles: Annotated[
        dict[str, ShownNumber], Field(description="nats, by level", examples=[{"5": 0.1, "50": 2.4}])
    ]
    spread_ratio: Annotated[
        ShownNumber | None,
        Field(description="median over examples: standard deviation over your models, of retrained models'"),
    ] = None
    share_above: Annotated[
        ShownNumber | None, Field(description="of the examples that your models are surer of than retrained ones")
    ] = None

    @classmethod
    def of(cls, factors: Any, details: Mapping[str, Any]) -> "Breakdown":
        """Return the parts as they are shown. details: what is kept beside a score's or the oracle's figures."""
        return cls(
            _rounded(factors.forgetting_quality),
            _rounded(factors.retain_ratio),
            _rounded(factors.test_ratio),
            {level: _rounded(value) for level, value in details.get("epsilon_percentiles", {}).items()},
            show_metric(details.get("spread_ratio"), exact=False),
            show_metric(details.get("share_above"), exact=False),
        )

    @classmethod
    def of_oracle(cls, oracle: dict[str, Any] | None) -> "Breakdown | None":
        """Return the same of exact retraining, as its split keeps it; None where it was not stored in full."""
        if not oracle or "forgetting_quality" not in oracle:
            return None
        return cls.of(SimpleNamespace(**oracle), oracle)

    @classmethod
    def of_original(cls, oracle: dict[str, Any] | None) -> "Breakdown | None":
        """Return the same of the original model; None where it was not stored in full."""
        original = _original_of(oracle)
        ratios = original["f"].get("table") if original else None
        if not original or not ratios or None in ratios.values():
            return None
        return cls.of(SimpleNamespace(forgetting_quality=original["f"]["value"], **ratios), {})


@dataclass(frozen=True)
class ShownScore:
    """A score on one split."""

    final_score: Annotated[ShownNumber, Field(examples=[0.0731])]
    interval_low: Annotated[ShownNumber | None, Field(description="where the organiser shows intervals")]
    interval_high: ShownNumber | None
    scorer_version: Annotated[str, Field(examples=["1"])]
    computed_at: Annotated[ShownMoment, Field(description="to the minute")]
    run_time_s: Annotated[
        ShownNumber | None, Field(description="what the median run takes at most", examples=[0.12])
    ] = None
    run_limit_s: Annotated[ShownNumber | None, Field(description="of one run, of the same time", examples=[0.2])] = None
    run_time_of: Annotated[ShownText, Field(description="the processor or the clock", examples=["processor"])] = (
        ShownText("clock")
    )
    breakdown: Annotated[Breakdown | None, Field(description="where the organiser shows it")] = None
    is_unconfirmed: Annotated[bool, Field(description="it takes no rank until an organiser confirms it")] = False


def score(
    stored: PublicScore | PrivateScore,
    competition: Competition,
    *,
    received_at: datetime | None = None,
    rung: float | None = None,
    is_unconfirmed: bool | None = None,
) -> ShownScore:
    """Return a score with what the competition's file opens of it.

    received_at: of the submission; its minute may begin earlier, but no score is computed before. rung,
    is_unconfirmed: what its ladder shows after the submission, and whether that is unconfirmed. Why a score is
    unconfirmed is not shown: it could tell hidden values.
    """
    metric = stored_file(competition).scoring
    visibility = Visibility.PUBLIC if isinstance(stored, PublicScore) else Visibility.PRIVATE
    hides_parts = shows_ladder(competition, visibility)
    low, high = stored.interval_low, stored.interval_high
    has_interval = metric.show_intervals and not hides_parts and low is not None and high is not None
    has_parts = metric.show_breakdown and not hides_parts
    minute = to_minute(stored.computed_at)
    run_time_s, run_limit_s = show_run_time(stored.details) or (None, None)
    return ShownScore(
        final_score=show_score(stored.final_score if rung is None else rung, visibility),
        interval_low=show_score(low, visibility) if has_interval and low is not None else None,
        interval_high=show_score(high, visibility) if has_interval and high is not None else None,
        scorer_version=stored.scorer_version,
        computed_at=ShownMoment(max(minute, received_at) if received_at else minute),
        run_time_s=run_time_s,
        run_limit_s=run_limit_s,
        run_time_of=ShownText((stored.details.get("run_time") or {}).get("of", "clock")),
        breakdown=Breakdown.of(stored, stored.details) if has_parts else None,
        is_unconfirmed=stored.is_unconfirmed if is_unconfirmed is None else is_unconfirmed,
    )


def bits_counted(shown: ShownScore) -> float:
    """Return what a score's additions tell: those that organisers open, the time of a run, whether it is confirmed."""
    parts: list[float] = []
    if factors := shown.breakdown:
        ratios = factors.retain_ratio, factors.test_ratio
        parts = [factors.forgetting_quality, *ratios, *factors.epsilon_percentiles.values()]
        parts += [ratio for ratio in (factors.spread_ratio, factors.share_above) if ratio is not None]
    ends = 2 if shown.interval_low is not None else 0
    opened = sum(bits_of_value(part) for part in parts) + ends * BITS_OF_A_SCORE
    return opened + BITS_OF_A_CONFIRMATION + (BITS_OF_A_RUN_TIME if shown.run_time_s else 0.0)


@dataclass(frozen=True)
class ShownPaired:
    """A paired comparison of two scores of one team. winner: 1, 2, or 0 if the test does not distinguish them."""

    difference: ShownNumber
    interval: tuple[ShownNumber, ShownNumber]
    p_value: ShownNumber
    winner: int


def paired(test: Paired) -> ShownPaired:
    """Return a paired comparison with the digits of scores, its p-value with those of metrics."""
    low, high = map(show_score, test.interval)
    return ShownPaired(show_score(test.difference), (low, high), _rounded(test.p_value), test.winner)


# Metrics


@dataclass(frozen=True)
class ShownMetric:
    """A metric of one submission, and what it is of exact retraining and of the original model."""

    value: ShownNumber | None
    interval_low: ShownNumber | None
    interval_high: ShownNumber | None
    standard_deviation: Annotated[ShownNumber | None, Field(description="over runs")]
    oracle: Annotated[ShownNumber | None, Field(description="of exact retraining with other seeds")]
    original: Annotated[ShownNumber | None, Field(description="of the original model, unchanged")]
    not_computed: ShownText
    notes: list[ShownText]
    table: ShownTable


def metric(row: MetricResult, *, exact: bool) -> ShownMetric:
    """Return a computed metric. exact: for organisers."""
    numbers = ("value", "interval_low", "interval_high", "standard_deviation", "oracle", "original")
    return ShownMetric(
        **{name: show_metric(getattr(row, name), exact=exact) for name in numbers},
        not_computed=ShownText(row.not_computed or ""),
        notes=[ShownText(note) for note in row.notes or ()],
        table=ShownTable(row.table if exact else {}),
    )


def bits_of_metric(computed: Any) -> float:
    """Return what a metric tells of the submission by its numbers and by its sentences, each of which has a number."""
    numbers = (computed.value, computed.interval_low, computed.interval_high, computed.standard_deviation)
    sentences = len(computed.notes) + bool(computed.not_computed)
    return sum(bits_of_value(each) for each in numbers if each is not None) + BITS_OF_A_VALUE * sentences


def bits_of_value(value: float) -> float:
    """Return what a metric's value can tell: how many different ones are shown up to its size, with its sign."""
    decades = max(0, ceil(log10(abs(value)))) if value else 0
    return BITS_OF_A_VALUE + log2(1 + 0.9 * decades) + (value < 0)


# Failures


def failure(submission: Submission) -> dict[str, Any]:
    """Return what a team may read of its submission's failure, as the leak budget let it through."""
    error = submission.error or {}
    return {name: error[name] for name in FAILURE_FIELDS if name in error}


def _rounded(value: float) -> ShownNumber:
    return ShownNumber(round(value, METRIC_DIGITS) if abs(value) < 1 else float(f"{value:.{METRIC_DIGITS}g}"))
