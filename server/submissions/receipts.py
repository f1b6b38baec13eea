"""Receipts: what a score was made of, signed by the instance, so that anybody can hold it up later.

A receipt is canonical JSON (sorted keys, no spaces) with an Ed25519 signature over its bytes. The key is derived from
the instance's secret key: every process of an instance signs alike, and nothing more has to be kept.

Seeds stand in it only as an HMAC: who could compute a split's seed could cut the private split. Before the reveal, that
of a team holds the score with the digits that it sees, no times of hidden runs, and an HMAC of each result: of a plain
hash a submission could choose the input so that its team finds hidden data by trying.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy.orm import Session

from lethe.client.bundle import RECEIPT_FORMAT, canonical
from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.submission.libraries import OLDER_SETS
from server import audit
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.disclosure import gate
from server.disclosure.shown_progress import to_minute
from server.evaluations import evaluation_repository, parts
from server.evaluations.claimed_shard import run_seed
from server.finals import finals_repository
from server.models.account import Account
from server.models.competition import Split
from server.models.evaluation import Evaluation, PrivateScore, PublicScore, Shard, ShardAttempt
from server.models.submission import Submission
from server.submissions import submission_repository


def signing_key(settings: Settings) -> Ed25519PrivateKey:
    """Return the instance's key for receipts."""
    return Ed25519PrivateKey.from_private_bytes(_derive(settings, b"lethe receipts"))


def public_key_text(settings: Settings) -> str:
    """Return the public half, base64, as receipts and `GET /api/v1/receipt-key` show it."""
    return _encode(signing_key(settings).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def issue(
    session: Session, settings: Settings, submission: Submission, visibility: Visibility, *, is_organiser: bool
) -> dict[str, Any]:
    """Return the signed receipt of a submission's score on one split. Raises NotFound if none is shown."""
    make = _of_parts if stored_file(submission.competition).tasks else _of_score
    body = make(session, settings, submission, visibility, is_organiser=is_organiser)
    return {**body, "public_key": public_key_text(settings), "signature": sign(settings, body)}


def _of_score(
    session: Session, settings: Settings, submission: Submission, visibility: Visibility, *, is_organiser: bool
) -> dict[str, Any]:
    may_see = visibility in gate.receipts_shown(submission.competition, organiser=is_organiser)
    score = _score(session, submission.id, visibility) if may_see else None
    if score is None:
        raise NotFound(f"There is no receipt of {submission.id} on the {visibility} split")
    exact = gate.shows_exactly(submission.competition, organiser=is_organiser)
    body = _body(session, settings, submission, score, exact=exact)
    if not submission.competition.scores_verified:
        body["unverified_archive"] = submission.competition.archive_key
    return body


def _of_parts(
    session: Session, settings: Settings, submission: Submission, visibility: Visibility, *, is_organiser: bool
) -> dict[str, Any]:
    """Return a receipt that holds those of the parts, by task; what was not scored has none. Raises NotFound."""
    signed = {}
    for part in parts.of(session, [submission.id]).get(submission.id, ()):
        with suppress(NotFound):
            signed[part.competition.task_name] = issue(session, settings, part, visibility, is_organiser=is_organiser)
    if not signed:
        raise NotFound(f"There is no receipt of {submission.id} on the {visibility} split")
    return {
        "format": RECEIPT_FORMAT,
        "competition": submission.competition.slug,
        "submission": _submission(submission),
        "combine": stored_file(submission.competition).combine.model_dump(mode="json"),
        "tasks": signed,
    }


def _submission(submission: Submission) -> dict[str, Any]:
    of_whole = {"part_of": submission.parent_id} if submission.parent_id else {}
    of_phase = {"phase": submission.phase} if submission.phase else {}
    return {
        "id": submission.id,
        "is_official": submission.is_official,
        **of_phase,
        "sha256": submission.content_sha256,
        "entry_point": {name: value for name, value in submission.entry_point.items() if name != "edits"},
        "received_at": submission.received_at.isoformat(),
        **of_whole,
    }


def sign(settings: Settings, body: Mapping[str, Any]) -> str:
    """Return the instance's signature, base64, of plain JSON values."""
    return _encode(signing_key(settings).sign(canonical(body)))


def _body(
    session: Session, settings: Settings, submission: Submission, score: PublicScore | PrivateScore, *, exact: bool
) -> dict[str, Any]:
    evaluation = session.get_one(Evaluation, score.evaluation_id)
    split = session.get_one(Split, evaluation.split_id)
    shards = evaluation_repository.shards_of_runs(session, evaluation.id)
    attempts = evaluation_repository.get_attempts(session, [evaluation.id]) if exact else ()
    shown = gate.score(score, submission.competition, received_at=submission.received_at)
    libraries = stored_file(submission.competition).submissions.libraries
    return {
        "format": RECEIPT_FORMAT,
        "competition": submission.competition.slug,
        "submission": _submission(submission),
        "split": {
            "visibility": split.visibility,
            "manifest_sha256": split.manifest_sha256,
            "device": split.device,
            "versions": split.versions,
        },
        "evaluation": {
            "id": evaluation.id,
            "setup": stored_file(submission.competition).scoring.setup,
            "runs": evaluation.n_runs,
            **({"libraries": {"set": libraries, **OLDER_SETS[libraries]}} if libraries else {}),
            "seeds_hmac_sha256": _seeds(settings, submission, split, runs=evaluation.n_runs),
            "results": [_shard(settings, shard, exact=exact) for shard in shards],
            "attempts": [_attempt(attempt, shard) for attempt, shard in attempts],
            "wall_time_s": 60.0 * ceil(sum(shard.wall_time_s for shard in shards) / 60) if exact else None,
        },
        "score": {
            "final_score": score.final_score if exact else shown.final_score,
            "final_score_bits": float(score.final_score).hex() if exact else None,
            **({"unconfirmed": True} if shown.is_unconfirmed else {}),
            "scorer_version": score.scorer_version,
            "ranking": stored_file(submission.competition).ranking.model_dump(mode="json"),
            "computed_at": shown.computed_at.isoformat(),
        },
    }


def _score(session: Session, submission_id: str, visibility: Visibility) -> PublicScore | PrivateScore | None:
    if visibility is Visibility.PUBLIC:
        return submission_repository.public_scores(session, [submission_id]).get(submission_id)
    return finals_repository.private_scores(session, [submission_id]).get(submission_id)


def _shard(settings: Settings, shard: Shard, *, exact: bool) -> dict[str, Any]:
    bound = _hmac(settings, b"lethe receipt results", shard.result_sha256 or "")
    runs = {"first_run": shard.first_run, "runs": shard.n_runs, "hmac_sha256": bound}
    return runs | {"sha256": shard.result_sha256} if exact else runs


def _attempt(attempt: ShardAttempt, shard: Shard) -> dict[str, Any]:
    return {
        "first_run": shard.first_run,
        "kind": shard.kind,
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "started_at": to_minute(attempt.started_at).isoformat(),
        "ended_at": to_minute(attempt.ended_at).isoformat() if attempt.ended_at else None,
    }


def _seeds(settings: Settings, submission: Submission, split: Split, *, runs: int) -> str:
    slug = submission.competition.slug
    split_seed = stored_file(submission.competition).splits.seed
    seeds: Sequence[int] = [run_seed(slug, split.visibility, split_seed=split_seed, run=run) for run in range(runs)]
    return _hmac(settings, b"lethe receipt seeds", ",".join(str(seed) for seed in seeds))


def _hmac(settings: Settings, purpose: bytes, message: str) -> str:
    return hmac.new(_derive(settings, purpose), message.encode(), hashlib.sha256).hexdigest()


def _derive(settings: Settings, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(settings.signing_key())


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def allow(session: Session, submission: Submission, *, allowed: bool, actor: Account) -> Submission:
    """Allow or forbid publishing the code, of all parts at once. What is published stays so. Recorded."""
    whole = submission_repository.by_id(session, submission.parent_id or submission.id) or submission
    if whole.publish_code != allowed:
        for each in (whole, *parts.of(session, [whole.id]).get(whole.id, ())):
            each.publish_code = allowed
        action = "submission.publication_allowed" if allowed else "submission.publication_withdrawn"
        audit.record(session, actor, action, competition=whole.competition_id, subject=whole.id)
        session.flush()
    return submission
