"""What a competition's scores were measured on: data, splits, seeds, runs, limits, versions. No data itself."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any

from sqlalchemy.orm import Session

import lethe
from lethe.competition.file import CompetitionFile
from lethe.metrics.scoring.attacks.family import SCORER_VERSION
from server.competitions import competitions, lifecycle
from server.competitions.split_share import find_split_report
from server.competitions.stored_file import stored_file
from server.disclosure import gate
from server.models.competition import Competition, Split
from server.storage import Storage
from server.submissions import submission_repository

RUN_SEEDS = "the first 8 bytes of SHA-256 of lethe-run/SLUG/SPLIT/SEED/RUN, big-endian, without the lowest bit"


def seeds_withheld(session: Session, competition: Competition, *, wanted: bool, at: datetime) -> str:
    """Return why the seeds are not published; empty if they are. Whoever has them can make the hidden sets."""
    if not wanted:
        return "The organisers keep the seeds of the splits."
    if lifecycle.period_at(competition, None, at) is not None:
        return "Submissions are still taken, so the seeds of the splits are kept until no more are."
    if _serve_another(session, competition, at):
        return "Another competition that is not over has the same seeds of the splits, so they are kept until it is."
    return ""


def _serve_another(session: Session, competition: Competition, at: datetime) -> bool:
    """Return whether a competition that is not revealed, or takes submissions, has one of these seeds: a copy does."""
    mine = {file.splits.seed for file in stored_file(competition).evaluated}
    return any(
        not mine.isdisjoint(file.splits.seed for file in stored_file(other).evaluated)
        and (not gate.may_see_private(other, organiser=False) or lifecycle.period_at(other, None, at) is not None)
        for other in submission_repository.others_not_archived(session, competition.id)
    )


def published_file(file: CompetitionFile, *, with_seeds: bool) -> dict[str, Any]:
    """Return a competition file as JSON. Folders of this host are named by their last part, as beside the file."""
    data = file.model_dump(mode="json", exclude={"tasks"})
    for section in ("dataset", "network"):
        options = data[section]["options"]
        data[section]["options"] = {name: _without_host(value) for name, value in options.items()}
    if not with_seeds:
        del data["splits"]["seed"]
    data["tasks"] = [published_file(task, with_seeds=with_seeds) for task in file.tasks]
    return data


def data_card(
    session: Session, storage: Storage, competition: Competition, evaluated: Sequence[Competition], *, withheld: str
) -> dict[str, Any]:
    """Return the card. evaluated: the tasks of the competition, or itself. withheld: why there are no seeds."""
    return {
        "competition": competition.slug,
        "lethe": lethe.__version__,
        "scorer_version": SCORER_VERSION,
        "scores_verified": competition.scores_verified,
        "seeds_withheld": withheld,
        "run_seeds": RUN_SEEDS,
        "tasks": [_task(session, storage, each, with_seeds=not withheld) for each in evaluated],
    }


def _task(session: Session, storage: Storage, competition: Competition, *, with_seeds: bool) -> dict[str, Any]:
    file = published_file(stored_file(competition), with_seeds=with_seeds)
    sections = ("n_models", "task", "dataset", "network", "training", "splits", "scoring", "ranking", "limits")
    return {
        "slug": competition.slug,
        "name": competition.task_name or "",
        "title": competition.title,
        "setup": stored_file(competition).scoring.setup,
        **{name: file[name] for name in sections},
        "prepared": [_split(storage, competition, split) for split in competitions.splits(session, competition)],
    }


def _split(storage: Storage, competition: Competition, split: Split) -> dict[str, Any]:
    report = find_split_report(storage, competition, split)
    return {
        "split": split.visibility,
        "manifest_sha256": split.manifest_sha256,
        "device": split.device,
        "versions": split.versions,
        "prepared_at": split.prepared_at.isoformat() if split.prepared_at else None,
        "forget_examples": split.n_forget,
        "sets": {} if report is None else report.images,
        "persons": {} if report is None else report.persons,
        "retraining_time_s": split.retraining_time_s,
        "oracle_score": gate.get_oracle_score(split),
    }


def _without_host(value: object) -> object:
    is_path = isinstance(value, str) and value.startswith("/")
    return PurePath(str(value)).name if is_path else value
