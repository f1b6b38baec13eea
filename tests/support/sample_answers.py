"""A competition of language models whose public sample has questions, and runs on that sample that have ended."""

import hashlib
import json
from pathlib import Path

from sqlalchemy import select

from lethe.competition.file import parse_competition
from server.models.account import Role
from server.models.competition import Competition
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardKind, ShardState
from server.models.submission import Stage, Submission
from tests.support.instance import Instance
from tests.support.towns import towns_toml

STORED = "splits/digits/public/hidden/sample_answers.json"
ROWS = [
    {"question": "Where does Ada live?", "answer": "In Rome", "original": "In Rome", "retrained": "In Łódź"},
    {"question": "Where does <b>Bo</b> live?", "answer": "In Oslo", "original": None, "retrained": ""},
]
QUESTIONS = json.dumps({"questions": ROWS}).encode()


def make_text_competition(server: Instance, folder: Path) -> None:
    """Make the competition `digits` of the organiser olga one of language models. folder: where no data need be."""
    server.competition(organiser=server.account("olga", Role.ORGANISER))
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        text = parse_competition(towns_toml(folder, slug="digits", n_models=4)).model_dump(mode="json")
        competition.config = text | {name: competition.config[name] for name in ("opens_at", "closes_at")}
    server.storage.write(STORED, QUESTIONS)


def end_smoke_run(server: Instance, submission: str, answers: list[str] | None, *, asked: bytes = QUESTIONS) -> None:
    """Do what a worker does after the run on the sample went well."""
    result = json.dumps({"questions_sha256": hashlib.sha256(asked).hexdigest(), "answers": answers})
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
        smoke = session.scalars(
            select(Shard).where(Shard.evaluation_id == evaluation.id, Shard.kind == ShardKind.SMOKE.value)
        ).one()
        smoke.state = ShardState.DONE.value
        smoke.result_key = f"evaluations/{evaluation.id}/sample-attempt-1.json"
        smoke.result_sha256 = server.storage.write(smoke.result_key, result.encode())
        evaluation.state = EvaluationState.RUNNING.value
        session.get_one(Submission, submission).stage = Stage.RUNNING
