"""The list of competitions in groups, and the overview of one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.run_limits import RunLimit, limit_warnings, run_limit
from lethe.competition.visibility import Visibility
from lethe.submission.libraries import OLDER_SETS, PYTHON_OF_SETS
from server import starter_kit
from server.admin import competition_edits
from server.competitions import competitions, participation
from server.competitions.lifecycle import is_revealed
from server.competitions.split_share import opening_of
from server.db import clock, now
from server.deps import SessionDep, StorageDep
from server.disclosure import gate
from server.leaderboard.boards import Summary, summary
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Split
from server.submissions import views as submission_views
from server.teams import teams
from server.web.charts import epsilon_charts
from server.web.deps import Place, PlaceDep, ViewerDep
from server.web.page_router import page_router
from server.web.rendering import page
from server.web.submission_lists import waits_of

S = CompetitionState
NOT_PUBLIC = (S.DRAFT, S.PREPARING)
GROUPS = ("Open", "Opening soon", "Closed, being decided", "Finished", "Not public yet")


@dataclass(frozen=True)
class Card:
    """One competition."""

    competition: Competition
    group: str
    board: Summary
    is_mine: bool
    has_results: bool


def make_card(session: Session, competition: Competition, *, mine: Collection[str]) -> Card:
    return Card(
        competition=competition,
        group=_group(competition),
        board=summary(session, competition),
        is_mine=competition.id in mine,
        has_results=is_revealed(competition),
    )


def grouped(cards: Sequence[Card]) -> list[tuple[str, list[Card]]]:
    """Return the groups that have competitions, what can be entered first; in the open one, what ends next first."""
    groups = [(name, [card for card in cards if card.group == name]) for name in GROUPS]
    ordered = [
        (name, sorted(group, key=lambda card: card.competition.closes_at) if name == GROUPS[0] else group)
        for name, group in groups
    ]
    return [(name, group) for name, group in ordered if group]


def ends_next(entered: Sequence[Competition]) -> Competition | None:
    """Return which of these open competitions closes next."""
    still_open = [c for c in entered if c.state == S.OPEN and c.closes_at > now()]
    return min(still_open, key=lambda c: c.closes_at, default=None)


def _group(competition: Competition) -> str:
    state = S(competition.state)
    if state in NOT_PUBLIC:
        return GROUPS[4]
    if state in (S.READY, S.OPEN):
        if competition.closes_at <= now():
            return GROUPS[2]
        return GROUPS[0] if state == S.OPEN or competition.opens_at <= now() else GROUPS[1]
    return GROUPS[2] if state in (S.CLOSED, S.PROVISIONAL) else GROUPS[3]


router = page_router(is_public=True)

NOT_OPEN_YET = (CompetitionState.DRAFT, CompetitionState.PREPARING, CompetitionState.READY)
MAIN = ("torch", "torchvision", "numpy", "pandas")  # libraries whose versions an overview names
STARTER_TOML = Path(__file__).parents[1] / "templates" / "organise" / "competition.toml.txt"


@router.get("/")
def competitions_page(request: Request, session: SessionDep, viewer: ViewerDep) -> Response:
    mine = teams.competitions_of(session, viewer) if viewer else frozenset()
    visible = competitions.list_visible(session, account=viewer)
    unfinished = submission_views.list_unfinished(session, viewer) if viewer else []
    preparing = {c.slug: opening_of(session, c, clock(session)) for c in competitions.list_in_preparation(session)}
    seen = {c.slug for c in visible}
    return page(
        request,
        "competitions.html",
        groups=grouped([make_card(session, c, mine=mine) for c in visible]),
        preparing=preparing,
        preparing_unseen=[opening for slug, opening in preparing.items() if slug not in seen],
        named={slug for slug, opening in preparing.items() if _may_be_named(session, opening.competition, viewer)},
        ends_next=ends_next([c for c in visible if c.id in mine]),
        unfinished=unfinished,
        waits=waits_of(session, unfinished),
        at=now(),
    )


def _may_be_named(session: Session, competition: Competition, viewer: Account | None) -> bool:
    """Return whether a competition in preparation is no secret: its opening time is past, and the viewer may see it."""
    return competition.opens_at <= now() and participation.may_see(session, competition, viewer)


@router.get("/competitions/{slug}")
def overview_page(
    request: Request, session: SessionDep, place: PlaceDep, storage: StorageDep, viewer: ViewerDep
) -> Response:
    split = competitions.find_split(session, place.competition, Visibility.PUBLIC)
    return page(
        request,
        "overview.html",
        place=place,
        tab="overview",
        timeline=competition_timeline(place.file, place.competition),
        announcements=competition_edits.announcements(session, place.competition),
        oracle=gate.get_oracle_score(split),
        n_forget=split.n_forget if split else None,
        may_have_data=participation.may_have_data(session, place.competition, viewer),
        has_pictures=starter_kit.has_pictures(storage, place.competition.slug),
        run_limit=limit_of_a_run(place.file, split) if split else None,
        limit_warnings=warnings_of_limits(place, split) if split else [],
        libraries=_older_libraries(place.file.submissions.libraries),
        **_epsilon_picture(place.file),
    )


def _older_libraries(name: str) -> str:
    """Return the main versions of a set of older libraries in words, "" without one."""
    versions = OLDER_SETS.get(name, {})
    return ", ".join([f"Python {PYTHON_OF_SETS}", *(f"{main} {versions[main]}" for main in MAIN)]) if versions else ""


@router.get("/competitions/{slug}/starter.py")
def starter_file(place: PlaceDep) -> Response:
    """Send the starter kit's entry alone."""
    name = f'attachment; filename="{place.competition.slug}_starter.py"'
    starter = starter_kit.SOURCES[place.file.evaluated[0].task.kind] / "submission.py"
    return Response(starter.read_bytes(), media_type="text/x-python", headers={"Content-Disposition": name})


@router.get("/competitions/{slug}/starter-kit.zip")
def starter_kit_file(place: PlaceDep, storage: StorageDep, session: SessionDep, viewer: ViewerDep) -> Response:
    """Send the starter kit to who may have the data: a browser is not logged in to the API."""
    participation.check_may_have_data(session, place.competition, viewer)
    name = f'attachment; filename="{place.competition.slug}-starter-kit.zip"'
    kit = starter_kit.read_kit(storage, place.competition.slug)
    return Response(kit, media_type="application/zip", headers={"Content-Disposition": name})


@router.get("/competitions/{slug}/pictures/{name}.png")
def sample_pictures(
    name: str, place: PlaceDep, storage: StorageDep, session: SessionDep, viewer: ViewerDep
) -> Response:
    """Send pictures of the public sample's forget or retain set, to who may have the data."""
    participation.check_may_have_data(session, place.competition, viewer)
    picture = starter_kit.read_picture(storage, place.competition.slug, name)
    return Response(picture, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


def _epsilon_picture(file: CompetitionFile) -> dict[str, Any]:
    lowest_rate = 0.0 if file.scoring.attacks.is_published else epsilon_charts.FLOOR
    separations = epsilon_charts.separations(file.n_models, file.scoring.delta, lowest_rate)
    return {
        "separations": separations,
        "separations_json": epsilon_charts.as_json(separations),
        "shown_first": epsilon_charts.SHOWN_FIRST,
        "curve": epsilon_charts.curve(),
    }


def competition_timeline(file: CompetitionFile, competition: Competition | None = None) -> list[tuple[str, datetime]]:
    """Return the dates of a file in order; where there is a competition, its own."""
    dates, at = competition or file, now()
    waits = competition is not None and competition.state in NOT_OPEN_YET
    dates_shown = [
        ("Opened" if dates.opens_at <= at and not waits else "Opens", dates.opens_at),
        ("Closed" if dates.closes_at <= at else "Closes", dates.closes_at),
    ]
    if competition and competition.revealed_at:
        dates_shown.append(("Results", competition.revealed_at))
    dates_shown += [
        (f"{phase.name.capitalize()} begins", phase.begins_at) for phase in file.phases[1:] if phase.begins_at
    ]
    if file.late.accepted and file.late.until:
        dates_shown.append(("Last late submissions", file.late.until))
    if file.merge_deadline:
        dates_shown.append(("Last day to merge teams", file.merge_deadline))
    return sorted(dates_shown, key=lambda pair: pair[1])


def limit_of_a_run(file: CompetitionFile, split: Split) -> RunLimit | None:
    """Return what one run is given; None while only a retraining can tell."""
    limits = file.limits
    if limits.run_fraction_of_retraining is not None and split.retraining_time_s is None:
        return None
    return run_limit(limits, split.retraining)


def warnings_of_limits(place: Place, split: Split) -> list[str]:
    """Return what its organisers read where a run has the time to retrain."""
    if not place.is_organiser or split.retraining_time_s is None:
        return []
    return limit_warnings(place.file.limits, split.retraining, n_models=place.file.n_models)
