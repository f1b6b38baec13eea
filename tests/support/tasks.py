"""A competition of three small tasks, two of images and one of text, in any state."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.evaluations import parts
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, SplitState
from tests.support.instance import GOOD_CODE, Instance

FACES, DIGITS, AUTHORS = "faces", "digits", "authors"
IMAGES = """
[[tasks]]
name = "{name}"
title = "{title}"
[tasks.dataset]
name = "digits"
[tasks.network]
name = "mlp"
[tasks.training]
epochs = 1
learning_rate = 0.1
"""
TEXT = """
[[tasks]]
name = "authors"
title = "Authors"
[tasks.task]
kind = "causal-lm"
[tasks.dataset]
name = "names"
[tasks.network]
name = "tiny_gpt"
[tasks.training]
epochs = 1
learning_rate = 0.01
optimizer = "adamw"
schedule = "cosine"
"""


def tasks_toml(
    slug: str = "three",
    *,
    opens_at: datetime | None = None,
    closes_at: datetime | None = None,
    extra: str = "",
    limits: dict[str, object] | None = None,
    text: bool = True,
) -> str:
    """Return the file of three tasks, or of the two of images."""
    lines = "\n".join(f"{name} = {value}" for name, value in (limits or {}).items())
    return f"""
slug = "{slug}"
title = "Three tasks"
opens_at = {(opens_at or now() - timedelta(days=1)).isoformat()}
closes_at = {(closes_at or now() + timedelta(days=1)).isoformat()}
n_models = 4
shard_runs = 2
[limits]
{lines}
{extra}
{IMAGES.format(name=FACES, title="Faces")}
{IMAGES.format(name=DIGITS, title="Digits")}
{TEXT if text else ""}
"""


def make_ready(server: Instance, slug: str = "three", *, state: str = CompetitionState.OPEN) -> None:
    """Do what preparations would: every split is ready, and the competition is in this state."""
    with server.database.write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == slug)).one()
        for split in competitions.splits(session, competition):
            split.state, split.manifest_sha256 = SplitState.READY.value, "0" * 64
            split.n_forget, split.retraining_time_s, split.oracle = 10, 100.0, {"final_score": 0.2}
        for each in (competition, *competitions.tasks(session, competition)):
            each.state = str(state)


def open_tasks(server: Instance, organiser: Account, **values: object) -> None:
    """Make the competition `three`, open."""
    with server.database.write() as session:
        competitions.create(session, tasks_toml(**values), organiser=organiser)  # type: ignore[arg-type]
    make_ready(server)


def send(server: Instance, headers: dict[str, str], tasks: str = "", **values: Any) -> Any:
    """Submit to some tasks, named with commas between, or to all."""
    file = (values.get("filename", "submission.py"), values.get("code", GOOD_CODE))
    path = "/api/v1/competitions/three/submissions"
    return server.client.post(path, headers=headers, files={"file": file}, data={"tasks": tasks})


def part_ids(server: Instance, submission_id: str) -> dict[str, str]:
    """Return the ids of a submission's parts by the tasks' names."""
    with server.database.read() as session:
        found = parts.of(session, [submission_id])[submission_id]
        return {str(part.competition.task_name): part.id for part in found}


def score_parts(
    server: Instance, submission_id: str, visibility: Visibility = Visibility.PUBLIC, **scores: float
) -> None:
    """Do what workers would in these tasks."""
    own = part_ids(server, submission_id)
    for name, value in scores.items():
        server.score(own[name], value, visibility=visibility)
