"""The list of competitions, and the overview of one."""

from datetime import datetime
from pathlib import Path

from fastapi import Request, Response

from server.admin import changes
from server.competitions import service as competitions
from server.competitions.config_file import CompetitionFile
from server.db import now
from server.deps import SessionDep
from server.leaderboard import service as leaderboards
from server.models.competition import Competition, CompetitionState, Split, Visibility
from server.web.deps import PlaceDep, ViewerDep
from server.web.rendering import page
from server.web.routing import page_router

router = page_router(is_public=True)

NOT_OPEN_YET = (CompetitionState.DRAFT, CompetitionState.PREPARING, CompetitionState.READY)
STARTER = Path(__file__).parents[1] / "templates" / "starter.py.txt"
STARTER_TOML = Path(__file__).parents[1] / "templates" / "organise" / "competition.toml.txt"


@router.get("/")
def competitions_page(request: Request, session: SessionDep, viewer: ViewerDep) -> Response:
    visible = competitions.list_visible(session, account=viewer)
    return page(request, "competitions.html", competitions=visible, at=now())


@router.get("/competitions/{slug}")
def overview_page(request: Request, session: SessionDep, place: PlaceDep) -> Response:
    split = competitions.split_of(session, place.competition, Visibility.PUBLIC)
    return page(
        request,
        "overview.html",
        place=place,
        tab="overview",
        timeline=timeline_of(place.file, place.competition),
        announcements=changes.announcements(session, place.competition),
        oracle=leaderboards.oracle_of(split),
        n_forget=split.n_forget,
        run_limit_s=run_limit_s(place.file, split),
    )


@router.get("/competitions/{slug}/starter.py")
def starter_file(place: PlaceDep) -> Response:
    """Send an example to begin with."""
    name = f'attachment; filename="{place.competition.slug}_starter.py"'
    return Response(STARTER.read_bytes(), media_type="text/x-python", headers={"Content-Disposition": name})


def timeline_of(file: CompetitionFile, competition: Competition | None = None) -> list[tuple[str, datetime]]:
    """Return the competition's dates in order.

    competition: what became of the file, whose dates go before the file's: by hand it opens and closes earlier.
    """
    dates, at = competition or file, now()
    waits = competition is not None and competition.state in NOT_OPEN_YET
    moments = [
        ("Opened" if dates.opens_at <= at and not waits else "Opens", dates.opens_at),
        ("Closed" if dates.closes_at <= at else "Closes", dates.closes_at),
    ]
    if competition and competition.revealed_at:
        moments.append(("Results", competition.revealed_at))
    if file.merge_deadline:
        moments.append(("Last day to merge teams", file.merge_deadline))
    return sorted(moments, key=lambda pair: pair[1])


def run_limit_s(file: CompetitionFile, split: Split) -> float | None:
    """Return the seconds that one run is given, as far as that is known before the split is prepared."""
    limits = file.limits
    bounds = [limits.run_wall_time_s] if limits.run_wall_time_s else []
    if limits.run_fraction_of_retraining and split.retraining_time_s:
        bounds.append(limits.run_fraction_of_retraining * split.retraining_time_s)
    return max(min(bounds), limits.run_wall_time_floor_s) if bounds else None
