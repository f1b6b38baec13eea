"""A bundle: the results of a competition that is over, as one zip that can be published, cited, checked and replayed.

It holds what everybody may see, and the code of those submissions whose teams agreed. No e-mail address, no file of
hidden data. `manifest.json`, signed like a receipt, names every other file with its hash.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import IO, Any
from zipfile import ZipFile

from jinja2 import Environment
from markupsafe import Markup
from sqlalchemy.orm import Session

import lethe
from lethe.client.bundle import COMPETITION, FORMAT, MANIFEST, canonical
from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.metrics.scoring.attacks.family import smallest_detectable_shift
from server.admin import competition_edits
from server.bundles import data_card
from server.competitions import competitions, lifecycle, participants, questions
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.db import now
from server.disclosure import gate
from server.downloads import HashedZip, plain_row, spool
from server.leaderboard import boards
from server.leaderboard.boards import Board
from server.leaderboard.ranking import Row, board_row
from server.models.competition import Competition
from server.models.submission import Submission
from server.parsing.client import markdown
from server.storage import Storage, content_key
from server.submissions import receipts, submission_repository, views
from server.template_environment import TEMPLATES, new_environment

CODE, RECEIPTS = "code", "receipts"


def add_entries(
    session: Session,
    storage: Storage,
    settings: Settings,
    competition: Competition,
    *,
    boards: Sequence[Mapping[str, Any]],
    archive: HashedZip,
) -> list[dict[str, Any]]:
    """Put receipts, and the code that may be published, into the archive. Return the entries, the earliest first."""
    on_boards = {row["submission"] for board in boards for row in board["rows"] if row["submission"]}
    entries = []
    for submission in submission_repository.published(session, competition.id, on_boards=on_boards):
        evaluated = views.view(session, [submission], ended_in_full=False)[0]
        parts = [
            _part(session, settings, view, archive=archive)
            for view in evaluated.parts or (evaluated,)
            if view.submission.id in on_boards or submission.publish_code
        ]
        code = _add_code(storage, submission, archive=archive) if submission.publish_code else None
        entries.append(
            {
                "id": submission.id,
                "team": submission.team.name,
                "is_baseline": submission.team.is_baseline,
                "received_at": submission.received_at.isoformat(),
                "phase": submission.phase,
                "is_official": submission.is_official,
                "mode": submission.entry_point.get("mode", "function"),
                "sha256": submission.content_sha256,
                "code": code,
                "filename": submission.filename if code else None,
                "parts": [part for part in parts if part["scores"]],
            }
        )
    return [entry for entry in entries if entry["parts"]]


def _part(session: Session, settings: Settings, view: views.SubmissionView, *, archive: HashedZip) -> dict[str, Any]:
    submission = view.submission
    shown = {Visibility.PUBLIC: view.score, Visibility.PRIVATE: view.private_score}
    scores = {}
    for visibility, score in shown.items():
        if score is None:
            continue
        try:
            receipt = receipts.issue(session, settings, submission, visibility, is_organiser=False)
        except NotFound:
            continue
        name = f"{RECEIPTS}/{submission.id}-{visibility.value}.json"
        archive.add(name, [canonical(receipt)], compress=True)
        scores[visibility.value] = {
            "final_score": score.final_score,
            "interval_low": score.interval_low,
            "interval_high": score.interval_high,
            "scorer_version": score.scorer_version,
            "runs": stored_file(submission.competition).n_models,
            "receipt": name,
        }
    return {"task": submission.competition.task_name or "", "submission": submission.id, "scores": scores}


def _add_code(storage: Storage, submission: Submission, *, archive: HashedZip) -> str | None:
    """Return the path of the code in the archive; None if it is no longer stored."""
    key = content_key(submission.content_sha256)
    if not storage.exists(key):
        return None
    suffix = "ipynb" if submission.filename.endswith(".ipynb") else submission.kind
    name = f"{CODE}/{submission.id}.{suffix}"
    if name not in archive.entries:
        archive.add(name, storage.chunks(key), compress=True)
    return name


FOLDER = TEMPLATES / "bundle"
STYLE = "style.css"
IMAGE = re.compile(r'<img src="([^"]*)" alt="([^"]*)"[^>]*>')
PAGES = {
    "index.html": "Leaderboards",
    "entries.html": "Entries",
    "about.html": "Competition",
    "data.html": "Data and replay",
}


def pages(content: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each page and of its style. content: what the bundle's JSON files hold."""
    places = {part["submission"]: entry["id"] for entry in content["entries"] for part in entry["parts"]}
    for name in PAGES:
        html = environment().get_template(name).render(page=name, pages=PAGES, places=places, **content)
        yield name, html.encode()
    yield STYLE, (FOLDER / STYLE).read_bytes()


@lru_cache
def environment() -> Environment:
    """Return the templates' environment, made once."""
    made = new_environment(FOLDER)
    made.filters.update(score=_score, when=_when, markdown=_text)
    return made


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.5f}"


def _when(value: str | None) -> str:
    return f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M} UTC" if value else "–"


def _text(text: str) -> Markup:
    """Return Markdown as HTML; pictures, which lie elsewhere, as links."""
    return Markup(IMAGE.sub(r'<a href="\1">\2</a>', str(markdown(text))))  # noqa: S704 (of what the parser has escaped)


def spooled(
    session: Session, storage: Storage, settings: Settings, competition: Competition, *, seeds: bool = True
) -> Iterator[bytes]:
    """Return the bundle piece by piece. seeds: with the splits' seeds. Raises NotRevealed, or Conflict for a task."""
    lifecycle.require_no_task(competition)
    if not gate.may_see_private(competition, organiser=False):
        raise gate.sealed(competition)

    def write(file: IO[bytes]) -> None:
        with ZipFile(file, "w") as zipped:
            _write(session, storage, settings, competition, archive=HashedZip(zipped, now()), seeds=seeds)

    return spool(write)


def _write(
    session: Session, storage: Storage, settings: Settings, competition: Competition, *, archive: HashedZip, seeds: bool
) -> None:
    tasks = competitions.tasks(session, competition)
    withheld = data_card.seeds_withheld(session, competition, wanted=seeds, at=archive.at)
    boards = [board for each in (competition, *tasks) for board in _boards_of(session, each)]
    content: dict[str, Any] = {
        "boards": boards,
        "entries": add_entries(session, storage, settings, competition, boards=boards, archive=archive),
        "about": _about(session, competition, made_at=archive.at),
        "data": data_card.data_card(session, storage, competition, tasks or [competition], withheld=withheld),
    }
    for name, value in content.items():
        archive.add(f"{name}.json", [_json(value)], compress=True)
    file = data_card.published_file(stored_file(competition), with_seeds=not withheld)
    archive.add(COMPETITION, [_json(file)], compress=True)
    archive.add("CITATION.cff", [_citation(content["about"]).encode()], compress=True)
    for name, page in pages(content | {"receipt_key": receipts.public_key_text(settings)}):
        archive.add(name, [page], compress=True)
    sums = "".join(f"{entry['sha256']}  {name}\n" for name, entry in sorted(archive.entries.items()))
    archive.add("SHA256SUMS", [sums.encode()], compress=True)
    _sign(settings, competition, archive)


def _boards_of(session: Session, competition: Competition) -> Iterator[dict[str, Any]]:
    for visibility in (Visibility.PRIVATE, Visibility.PUBLIC):
        board = boards.published_board(session, competition, visibility)
        yield _board(board, competition, visibility, "")
    for phase in lifecycle.phase_names(stored_file(competition)):
        board = boards.published_board(session, competition, Visibility.PUBLIC, phase)
        yield _board(board, competition, Visibility.PUBLIC, phase)


def _board(board: Board, competition: Competition, visibility: Visibility, phase: str) -> dict[str, Any]:
    return {
        "task": competition.task_name or "",
        "title": competition.title,
        "split": visibility.value,
        "phase": phase,
        "oracle": board.oracle,
        "n_models": board.n_models,
        "smallest_detectable_shift": smallest_detectable_shift(board.n_models),
        "columns": [
            {name: getattr(column, name) for name in ("id", "title", "unit", "direction", "oracle", "original")}
            for column in board.columns
        ],
        "rows": [_board_row(row, board) for row in board.rows],
    }


def _board_row(row: Row, board: Board) -> dict[str, Any]:
    """Return what everybody sees; ids of teams are this instance's."""
    shown = board_row(row, board.columns)
    del shown["team_id"]
    return plain_row(shown)


def _sign(settings: Settings, competition: Competition, archive: HashedZip) -> None:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "competition": competition.slug,
        "lethe": lethe.__version__,
        "written_at": archive.at.isoformat(),
        "files": dict(archive.entries),
    }
    signed = manifest | {
        "public_key": receipts.public_key_text(settings),
        "signature": receipts.sign(settings, manifest),
    }
    archive.add(MANIFEST, [_json(signed)], compress=True)


def _about(session: Session, competition: Competition, *, made_at: datetime) -> dict[str, Any]:
    file = stored_file(competition)
    asked = questions.shown_to(session, competition, None)
    announced = competition_edits.announcements(session, competition)
    return {
        "slug": competition.slug,
        "title": competition.title,
        "summary": competition.summary,
        "description": file.description,
        "pages": file.pages.shown,
        "terms": file.participation.terms,
        "opens_at": competition.opens_at.isoformat(),
        "closes_at": competition.closes_at.isoformat(),
        "revealed_at": competition.revealed_at.isoformat() if competition.revealed_at else None,
        "made_at": made_at.isoformat(),
        "organisers": [account.name for account in participants.organisers_of(session, competition)],
        "phases": [phase.model_dump(mode="json") for phase in file.phases],
        "late": file.late.model_dump(mode="json"),
        "combine": file.combine.model_dump(mode="json") if file.tasks else None,
        "announcements": [
            {"title": row.title, "text": row.text, "created_at": row.created_at.isoformat()}
            for row, _author in announced
        ],
        "questions": [{"question": row.question, "answer": row.answer} for row in asked],
    }


def _citation(about: Mapping[str, Any]) -> str:
    """Return CITATION.cff, whose strings are JSON's, which YAML reads alike."""
    authors: Sequence[str] = about["organisers"] or ["the organisers"]
    released = (about["revealed_at"] or about["made_at"])[:10]
    lines = {
        "cff-version": "1.2.0",
        "message": "Please cite this competition's results as follows.",
        "type": "dataset",
        "title": f"{about['title']}: results of an unlearning competition",
        "abstract": about["summary"] or about["title"],
        "version": about["made_at"][:10],
        "date-released": released,
    }
    text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in lines.items())
    return text + "authors:\n" + "".join(f"  - name: {json.dumps(name)}\n" for name in authors)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
