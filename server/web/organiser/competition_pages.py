"""A competition for its organisers: its control page, its splits, its teams, its audit log, what they take away."""

from codecs import BOM_UTF8
from collections.abc import Callable
from itertools import chain
from typing import Annotated, Any

from fastapi import Form, Query, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from lethe.competition.task import ImageClassification, Task
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, NotFound
from server import audit
from server.admin import competition_edits, exports, moderation
from server.admin.exports import ExportTable, Format
from server.admission import AdmissionDep
from server.audit import EventFilter
from server.bundles import bundle
from server.competitions import (
    competitions,
    lifecycle,
    participants,
    questions,
    split_replacement,
    stalled_preparations,
)
from server.competitions.lifecycle import is_revealed
from server.competitions.split_share import find_split_report
from server.dashboard import dashboard
from server.deps import DatabaseDep, SettingsDep, StorageDep
from server.disclosure import gate
from server.finals import finals
from server.leaderboard import boards
from server.models.account import Account
from server.models.competition import Competition
from server.submissions import submissions
from server.teams import teams
from server.web import sse
from server.web.cookies import Flash
from server.web.deps import OrganiserDep, Place, needed
from server.web.organiser import audit_sentences
from server.web.organiser.checklist import ON_ANY_DEVICE, checklist
from server.web.page_router import page_router
from server.web.rendering import part, redirect, render

router = page_router()

Reason = Annotated[str, Form(max_length=500)]
Short = Annotated[str, Query(max_length=60)]
PageNumber = Annotated[int, Query(alias="page", ge=1, le=100_000)]
PhaseName = Annotated[str, Query(max_length=40)]
TABLES = {
    ExportTable.PUBLIC_LEADERBOARD: ("Public leaderboard", "A line for each team: rank, score, interval, entries"),
    ExportTable.PRIVATE_LEADERBOARD: (
        "Private leaderboard",
        "The same on the private split; sealed until you reveal it",
    ),
    ExportTable.SUBMISSIONS: ("Submissions", "A line for each: team, file and its SHA-256, stage, failure, choices"),
    ExportTable.EVALUATIONS: (
        "Evaluations",
        "A line for each, old and re-judged ones too, with every figure of its score",
    ),
    ExportTable.METRICS: ("Metrics", "A line for each of an evaluation: value, interval, the oracle, original model"),
    ExportTable.TERMS: ("Accepted terms", "Who accepted which version of the terms, and when"),
    ExportTable.AUDIT: ("Audit log", "Who did what, when, about what and why"),
}
TRANSITIONS: dict[str, tuple[Callable[..., object], str]] = {
    "open": (competitions.open_now, "The competition is open."),
    "close": (competitions.close_now, "The competition is closed; the finals are re-scored on the private split."),
    "reveal": (finals.reveal, "The private leaderboard is revealed."),
    "archive": (competition_edits.archive, "The competition is archived; everything stays to be read."),
}


@router.get("/organise/{slug}")
def control_page(asked: OrganiserDep) -> Response:
    return asked.page(
        "competition.html",
        tab="control",
        teams=dashboard.count_teams(asked.session, asked.competition),
        asked=participants.count_asked(asked.session, asked.competition),
        open_questions=questions.count_open(asked.session, asked.competition),
        **_state(asked.session, asked.competition),
    )


@router.get("/organise/{slug}/live")
def control_part(asked: OrganiserDep) -> Response:
    """Send the part that changes, for a page that cannot listen."""
    return part(
        asked.request, "organise/_control_live.html", place=asked.place, **_state(asked.session, asked.competition)
    )


@router.get("/organise/{slug}/events")
def control_events(database: DatabaseDep, asked: OrganiserDep) -> Response:
    """Stream the part that changes."""

    def look() -> sse.Frame:
        with database.read() as session:
            competition = competitions.of_id(session, asked.competition.id)
            html = render(
                asked.request, "organise/_control_live.html", place=asked.place, **_state(session, competition)
            )
            return sse.Frame(html, is_last=competition.state != asked.competition.state)

    return sse.stream(asked.request, look)


@router.post("/organise/{slug}/move")
def move(asked: OrganiserDep, *, act: Reason = "", reason: Reason = "") -> Response:
    """Take the competition's next step. Opening, closing and revealing by hand need a reason."""
    if not act.startswith("prepare"):
        needed(reason)
    done = _move(asked.session, asked.place, asked.viewer, act=act, reason=reason.strip())
    return asked.done(done)


@router.post("/organise/{slug}/cancel-preparation")
def cancel_preparation(asked: OrganiserDep) -> Response:
    """Call the first preparation of the splits off."""
    stalled_preparations.cancel(asked.session, asked.competition, actor=asked.viewer)
    done = "The preparation is cancelled; the competition is a draft again."
    return asked.done(done)


@router.post("/organise/{slug}/delete")
def delete(asked: OrganiserDep) -> Response:
    """Delete a draft."""
    slug = asked.competition.slug
    lifecycle.delete_draft(asked.session, asked.competition, actor=asked.viewer)
    return redirect(asked.request, "/organise", flash=Flash("good", f"The draft {slug} is deleted."))


@router.post("/organise/{slug}/finals/{submission_id}")
def decide(submission_id: str, asked: OrganiserDep, *, act: Reason = "", reason: Reason = "") -> Response:
    """Decide what happens with a final that failed on private data."""
    submission = submissions.of_competition(asked.session, asked.competition, submission_id)
    acts = {
        "exclude": moderation.exclude_final,
        "next": moderation.use_next_choice,
        "again": moderation.run_final_again,
    }
    if act not in acts:
        raise InvalidInput(f"{act!r} is not a decision; allowed are {', '.join(acts)}")
    acts[act](asked.session, submission, actor=asked.viewer, reason=needed(reason))
    return asked.done("Decided.")


@router.get("/organise/{slug}/teams")
def teams_page(asked: OrganiserDep, *, q: Short = "", page_number: PageNumber = 1) -> Response:
    board = boards.whole_board(asked.session, asked.competition, Visibility.PUBLIC)
    rows, has_more = teams.search(asked.session, asked.competition, query=q, page=page_number)
    return asked.page(
        "teams.html",
        tab="teams",
        rows=rows,
        has_more=has_more,
        page_number=page_number,
        board=board,
        query=q,
        may_change=competition_edits.may_change(asked.competition),
        organisers=participants.organisers_of(asked.session, asked.competition),
    )


@router.get("/organise/{slug}/audit")
def audit_page(
    asked: OrganiserDep,
    *,
    action: Annotated[str, Query(max_length=60)] = "",
    actor: Annotated[str, Query(max_length=60)] = "",
    page_number: PageNumber = 1,
) -> Response:
    wanted = EventFilter(competition_id=asked.competition.id, action=action or None, actor=actor.strip() or None)
    events, has_more = audit.events_page(asked.session, wanted, page=page_number)
    return asked.page(
        "audit.html",
        tab="audit",
        sentences=audit_sentences.sentences(asked.session, events, slug=asked.competition.slug),
        has_more=has_more,
        page_number=page_number,
        action=action,
        actor=actor,
        actions=audit.actions(asked.session, asked.competition),
    )


def _state(session: Session, competition: Competition) -> dict[str, Any]:
    splits = competitions.splits(session, competition)
    return {
        "competition": competition,
        "steps": checklist(session, competition),
        "splits": [*splits, *competitions.replacements(session, competition)],
        "shards": competitions.model_shards(session, splits),
        "may_change": competition_edits.may_change(competition),
        "may_rewrite": competition_edits.may_replace_file(competition, list(splits)),
        "stages": dashboard.count_stages(session, competition),
    }


def _move(session: Session, place: Place, viewer: Account, *, act: str, reason: str) -> str:
    competition = place.competition
    if act in ("prepare", ON_ANY_DEVICE[0]):
        any_device = act == ON_ANY_DEVICE[0]
        competitions.prepare(session, competition, actor=viewer, any_device=any_device)
        return "The splits are " + ("begun again by whatever workers there are." if any_device else "being prepared.")
    if act not in TRANSITIONS:
        raise InvalidInput(f"{act!r} is not a step; allowed are prepare, {', '.join(TRANSITIONS)}")
    step, done = TRANSITIONS[act]
    step(session, competition, actor=viewer, reason=reason)
    return done


def name_shared(task: Task) -> dict[str, str]:
    """Return what sets can share, by the field of the report that counts it: near-duplicates for images alone."""
    shared = {
        "shared_images": f"the same {task.example}",
        "shared_persons": "the same person",
        "exact_duplicates": "exact duplicates",
    }
    return shared | {"near_duplicates": "near-duplicates"} if isinstance(task, ImageClassification) else shared


@router.get("/organise/{slug}/splits/{visibility}")
def split_page(visibility: Visibility, storage: StorageDep, asked: OrganiserDep) -> Response:
    split = competitions.get_split(asked.session, asked.competition, visibility)
    report = find_split_report(storage, asked.competition, split)
    return asked.page(
        "split.html",
        tab="control",
        split=split,
        replacement=split_replacement.find(asked.session, asked.competition, visibility),
        may_replace=split_replacement.may_replace(asked.competition),
        report=report,
        example=asked.place.file.task.example,
        shared=name_shared(asked.place.file.task),
        most={name: max(counts.values(), default=0) for name, counts in report.classes.items()} if report else {},
        overlaps=sum(pair.overlaps for pair in report.pairs) if report else 0,
    )


@router.post("/organise/{slug}/splits/{visibility}/replace")
def replace_split(
    visibility: Visibility, asked: OrganiserDep, *, reason: Annotated[str, Form(max_length=500)] = ""
) -> Response:
    """Prepare another version of the split from the data as it is now."""
    split_replacement.replace(asked.session, asked.competition, visibility, actor=asked.viewer, reason=needed(reason))
    return asked.done(f"Another version of the {visibility} split is being prepared.", to=f"/splits/{visibility}")


@router.get("/organise/{slug}/exports")
def exports_page(asked: OrganiserDep) -> Response:
    return asked.page(
        "exports.html",
        tab="exports",
        tables=TABLES,
        formats=[(Format.CSV, "CSV"), (Format.JSONL, "JSON Lines")],
        has_bundle=is_revealed(asked.competition) and asked.competition.parent_id is None,
        phases=lifecycle.phase_names(asked.place.file),
        has_private=gate.may_see_private(asked.competition, organiser=True),
    )


@router.get("/organise/{slug}/exports/{name}")
def download_export(name: str, asked: OrganiserDep, *, admission: AdmissionDep, phase: PhaseName = "") -> Response:
    """Send one table, streamed. name: e.g. submissions.csv. phase: whose public leaderboard."""
    table, _, form = name.partition(".")
    if table not in list(ExportTable) or form not in list(Format):
        raise NotFound(f"There is no export {name!r}")
    pieces = exports.spooled(asked.session, asked.competition, ExportTable(table), Format(form), phase=phase)
    if form == Format.CSV:
        pieces = chain([BOM_UTF8], pieces)  # Excel takes a file without it for one of another encoding
    called = f"{asked.competition.slug}-{table}{f'-{phase}' if phase else ''}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{called}"', "Cache-Control": "no-store"}
    return StreamingResponse(admission.pieces(pieces), media_type=exports.MEDIA_TYPES[Format(form)], headers=headers)


@router.get("/organise/{slug}/bundle.zip")
def download_bundle(
    asked: OrganiserDep, storage: StorageDep, settings: SettingsDep, *, admission: AdmissionDep, seeds: bool = True
) -> Response:
    """Send the results as a site to publish."""
    pieces = bundle.spooled(asked.session, storage, settings, asked.competition, seeds=seeds)
    called = f'attachment; filename="{asked.competition.slug}-bundle.zip"'
    headers = {"Content-Disposition": called, "Cache-Control": "no-store"}
    return StreamingResponse(admission.pieces(pieces), media_type="application/zip", headers=headers)
