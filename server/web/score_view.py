"""What a submission's page tells of its score, of the metrics beside it, and of how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil, log

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.metrics.core.metric_text import table_lines
from lethe.metrics.core.registry import metric
from lethe.metrics.scoring.explanation import Explanation
from server.api.metric_results import MetricValue
from server.disclosure.gate import Breakdown, ShownNumber
from server.disclosure.shown_progress import to_minute
from server.evaluations.evaluations import AttemptEntry
from server.leaderboard import boards
from server.metric_results import metric_results
from server.models.competition import Competition, Split
from server.models.submission import Stage, Submission
from server.submissions.views import SubmissionView

STEPS = (
    ("Received", None),
    ("Smoke run", Stage.SMOKE),
    ("Runs", Stage.RUNNING),
    ("Scoring", Stage.SCORING),
    ("Scored", Stage.SCORED),
)
ORDER = (Stage.QUEUED, Stage.SMOKE, Stage.RUNNING, Stage.SCORING, Stage.SCORED)
NEWEST_SHOWN = 40


@dataclass(frozen=True)
class Step:
    label: str
    state: str  # done, now, todo, failed, stopped


@dataclass(frozen=True)
class Event:
    """One line of the timeline."""

    text: str
    at: datetime
    kind: str  # past, now, bad


def timeline_steps(view: SubmissionView) -> list[Step]:
    """Return the steps of a submission, and which it has taken."""
    stage = view.submission.stage
    if stage in (Stage.FAILED, Stage.CANCELLED):
        reached = _reached(view)
        state = "failed" if stage is Stage.FAILED else "stopped"
    else:
        reached = ORDER.index(stage)
        state = "done" if stage is Stage.SCORED else "now"
    return [
        Step(label, "done" if place < reached else state if place == reached else "todo")
        for place, (label, _) in enumerate(STEPS)
    ]


def timeline_events(view: SubmissionView) -> list[Event]:
    """Return what happened after the submission was received, oldest first, and within a minute by the runs."""
    events = [event for entry in _attempts(view) for event in _events(entry)]
    if view.score:
        events.append(Event("Scored", view.score.computed_at, "past"))
    elif view.submission.finished_at and view.submission.stage == Stage.CANCELLED:
        events.append(Event("Cancelled", view.submission.finished_at, "bad"))
    elif view.submission.finished_at and view.submission.stage == Stage.FAILED:
        events.append(Event("Failed", view.submission.finished_at, "bad"))
    return sorted(events, key=lambda event: to_minute(event.at))[-NEWEST_SHOWN:]


def _attempts(view: SubmissionView) -> tuple[AttemptEntry, ...]:
    return view.progress.attempts if view.progress else ()


def _reached(view: SubmissionView) -> int:
    """Return the step at which a submission ended that has no score."""
    attempts = _attempts(view)
    if not attempts:
        return 0
    return 2 if any(attempt.kind == "runs" for attempt in attempts) else 1


def _events(attempt: AttemptEntry) -> list[Event]:
    what = "Smoke run" if attempt.kind == "smoke" else f"Runs {attempt.first_run + 1} to {attempt.last_run + 1}"
    again = f", attempt {attempt.attempt}" if attempt.attempt > 1 else ""
    if attempt.ended_at is None:
        return [Event(f"{what} in progress{again}", attempt.started_at, "now")]
    endings = {
        "done": ("done", "past"),
        "failed": ("failed", "bad"),
        "lost": ("lost their worker; resumed elsewhere", "bad"),
        "given-back": ("given back by a worker that was stopped; resumed elsewhere", "past"),
        "cancelled": ("stopped", "past"),
    }
    words, kind = endings.get(attempt.outcome, (attempt.outcome, "past"))
    return [Event(f"{what} {words}{again}", attempt.ended_at, kind)]


WIDTH = 600  # of the drawing of epsilons
FACTORS = (
    ("forgetting_quality", "Forgetting quality"),
    ("retain_ratio", "Accuracy on the retain set, of retraining's"),
    ("test_ratio", "Accuracy on the test set, of retraining's"),
)


@dataclass(frozen=True)
class BoardPlace:
    """Where the team stands on the public board. best_id: of the submission that it is ranked by."""

    rank: int | None
    teams: int
    best_id: str | None
    best_score: ShownNumber | None


@dataclass(frozen=True)
class Spread:
    """How epsilons are spread: positions in the drawing, 0..WIDTH, and the values as text."""

    name: str
    css: str
    low: float
    lower: float
    middle: float
    upper: float
    high: float
    label: str


@dataclass(frozen=True)
class BreakdownView:
    """The factors of a score beside others': label, values by `columns`, share of the loss. end: of the axis, nats."""

    columns: list[str]
    factors: list[tuple[str, list[ShownNumber], float | None]]
    spreads: list[Spread]
    ticks: list[tuple[int, float]]
    end: float
    explanation: Explanation | None


def find_standing(session: Session, competition: Competition, team_id: str) -> BoardPlace | None:
    """Return where the team stands, or None where it is on no board."""
    board = boards.board_for(session, competition, Visibility.PUBLIC, organiser=False)
    row = board.get_row(team_id)
    return BoardPlace(row.rank, board.teams, row.entry.submission_id, row.entry.score) if row else None


def find_breakdown(
    view: SubmissionView, split: Split, *, n_models: int, explanation: Explanation | None
) -> BreakdownView | None:
    """Return the public score's factors and epsilons beside the oracle's; None where they are not shown."""
    own = view.score.breakdown if view.score else None
    if own is None:
        return None
    oracle = Breakdown.of_oracle(split.oracle)
    end = float(max(1, ceil(log(n_models - 1)))) if n_models > 2 else 1.0  # beyond it no example earns points
    given = [("Your models", "spread-own", own)]
    if oracle:
        given.append(("Oracle", "spread-oracle", oracle))
    beside = {"Yours": own, "Oracle": oracle, "Original model": Breakdown.of_original(split.oracle)}
    shown = {name: one for name, one in beside.items() if one is not None}
    return BreakdownView(
        columns=list(shown),
        factors=[
            (label, [getattr(one, name) for one in shown.values()], explanation.costs[name] if explanation else None)
            for name, label in FACTORS
        ],
        spreads=[_spread(name, css, one.epsilon_percentiles, end) for name, css, one in given if _has_spread(one)],
        ticks=[(tick, _x(tick, end)) for tick in range(0, int(end) + 1, max(1, int(end) // 7))],
        end=end,
        explanation=explanation,
    )


def _has_spread(breakdown: Breakdown) -> bool:
    return {"5", "25", "50", "75", "95"} <= set(breakdown.epsilon_percentiles)


def _spread(name: str, css: str, percentiles: Mapping[str, float], end: float) -> Spread:
    low, lower, middle, upper, high = (_x(percentiles[level], end) for level in ("5", "25", "50", "75", "95"))
    values = ", ".join(f"{level} %: {percentiles[level]:.2f}" for level in ("5", "25", "50", "75", "95"))
    return Spread(name, css, low, lower, middle, upper, high, f"{name}: epsilon by share of examples, {values}")


def _x(epsilon: float, end: float) -> float:
    """Return where a value stands; all beyond the end stand in a part of their own, a twelfth wide."""
    inner = WIDTH * 11 / 12
    return round(min(epsilon / end, 1.0) * inner if epsilon <= end else (WIDTH + inner) / 2, 1)


BETTER = {"higher": "↑ higher", "lower": "↓ lower", "towards retrained": "→ as retrained", "none": "–"}
BETTER_IN_WORDS = {
    "higher": "higher is better",
    "lower": "lower is better",
    "towards retrained": "best as retrained",
    "none": "",
}


@dataclass(frozen=True)
class MetricLine:
    """One line: the value beside its references, what the metric is, and its table, which organisers alone have."""

    value: MetricValue
    better: str
    formula: str
    source: str
    table: list[str]


@dataclass(frozen=True)
class MetricTable:
    """The metrics on one split."""

    split: str
    lines: list[MetricLine]


def metric_tables(session: Session, submission: Submission, *, is_organiser: bool) -> list[MetricTable]:
    """Return a table for each split whose metrics the viewer may see and which has any."""
    tables = []
    for visibility in (Visibility.PUBLIC, Visibility.PRIVATE):
        try:
            rows = metric_results.of_submission(session, submission, visibility, is_organiser=is_organiser)
        except NotFound:
            continue
        if rows:
            values = [MetricValue.of(row, is_organiser=is_organiser) for row in rows]
            tables.append(MetricTable(visibility.value, [_line(value) for value in values]))
    return tables


def _line(value: MetricValue) -> MetricLine:
    entry = metric(value.id)
    return MetricLine(
        value=value,
        better=BETTER[value.direction],
        formula=entry.formula,
        source=entry.source,
        table=table_lines(value.table),
    )
