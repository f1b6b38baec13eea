"""What organisers take away: every table of a competition, as CSV and as JSON Lines."""

from codecs import BOM_UTF8
from itertools import chain
from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from lethe.errors import NotFound
from server.admin import exports
from server.admin.exports import ExportTable, Format
from server.admission import AdmissionDep
from server.bundles import bundle
from server.competitions import phases
from server.competitions.lifecycle import is_revealed
from server.deps import SettingsDep, StorageDep
from server.disclosure import gate
from server.web.page_router import page_router
from server.web.place_request import OrganiserDep

router = page_router()
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
    ExportTable.METRICS: (
        "Metrics",
        "A line for each of an evaluation: value, interval, the oracle, original model",
    ),
    ExportTable.TERMS: ("Accepted terms", "Who accepted which version of the terms, and when"),
    ExportTable.AUDIT: ("Audit log", "Who did what, when, about what and why"),
}


@router.get("/organise/{slug}/exports")
def exports_page(asked: OrganiserDep) -> Response:
    return asked.page(
        "exports.html",
        tab="exports",
        tables=TABLES,
        formats=[(Format.CSV, "CSV"), (Format.JSONL, "JSON Lines")],
        has_bundle=is_revealed(asked.competition) and asked.competition.parent_id is None,
        phases=phases.names(asked.place.file),
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
