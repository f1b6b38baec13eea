"""The timeline of a submission: its steps, and what happened to its runs."""

from dataclasses import dataclass
from datetime import datetime

from server.disclosure.shown_progress import to_minute
from server.evaluations.evaluations import AttemptEntry
from server.models.submission import Stage
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
    return 2 if any(entry.kind == "runs" for entry in attempts) else 1


def _events(entry: AttemptEntry) -> list[Event]:
    what = "Smoke run" if entry.kind == "smoke" else f"Runs {entry.first_run + 1} to {entry.last_run + 1}"
    again = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
    if entry.ended_at is None:
        return [Event(f"{what} in progress{again}", entry.started_at, "now")]
    endings = {
        "done": ("done", "past"),
        "failed": ("failed", "bad"),
        "lost": ("lost their worker; resumed elsewhere", "bad"),
        "given-back": ("given back by a worker that was stopped; resumed elsewhere", "past"),
        "cancelled": ("stopped", "past"),
    }
    words, kind = endings.get(entry.outcome, (entry.outcome, "past"))
    return [Event(f"{what} {words}{again}", entry.ended_at, kind)]
