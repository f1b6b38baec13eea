"""Fill a database with a competition of many teams, as after weeks of use. `python -m benchmarks.web.seed --help`."""

import argparse
import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from sqlalchemy import Connection, insert

from server.accounts.passwords import hash_password
from server.competitions.config_file import parse_competition
from server.db import Base, Database, now
from server.evaluations.versions import SCORER_VERSION
from server.migrate import upgrade
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionOrganiser, Membership, Split, Team
from server.models.evaluation import Evaluation, PublicScore, Shard, ShardAttempt
from server.models.submission import Submission
from server.storage import Storage, content_key

EXAMPLE = Path(__file__).parents[2] / "examples" / "competitions" / "digits.toml"
PASSWORD = "correct horse battery"
ORACLE_SCORE = 0.19034
WEEKS = 4
N_FORGET = 36
RETRAINED_KEY = "splits/digits/public/hidden/retrained/outputs.safetensors"
BATCH = 5000
CODE = (Path(__file__).parents[2] / "examples" / "submissions" / "finetune.py").read_bytes()
CODE_SHA256 = hashlib.sha256(CODE).hexdigest()
ADJECTIVES = (
    "amber",
    "brisk",
    "calm",
    "deft",
    "eager",
    "frank",
    "gentle",
    "hazel",
    "ionic",
    "jolly",
    "keen",
    "lucid",
    "mellow",
    "noble",
    "opal",
    "plain",
    "quiet",
)
NOUNS = (
    "river",
    "heron",
    "lantern",
    "meadow",
    "orbit",
    "pebble",
    "quartz",
    "ridge",
    "sparrow",
    "thicket",
    "umbra",
    "valley",
    "willow",
    "yarrow",
    "zephyr",
)
NOTES = (
    "lower learning rate",
    "noise on the last block, then two epochs",
    "prune 5 %, fine-tune",
    "freeze batch norm",
    "gradient ascent for one step",
    "",
    "layer-wise rates",
    "cosine schedule",
)
ERRORS = (
    (
        "exception",
        {
            "message": "The code raised an exception. See submission.py, line 12.",
            "exception_type": "KeyError",
            "file": "submission.py",
            "line": 12,
        },
    ),
    ("timeout", {"message": "The run was stopped after 5 s, the wall time of one run. Do fewer epochs or steps."}),
    ("non-finite-weights", {"message": "The unlearned model holds NaN or infinity. The first is in 'fc.weight'."}),
)


@dataclass(frozen=True)
class Seeded:
    """What a test or a benchmark needs to know of the seeded competition."""

    slug: str
    competition_id: str
    password: str
    organiser: str
    participant: str
    own_team_id: str
    running_submission_id: str
    failed_submission_id: str
    scored_submission_id: str


def seed(
    database: Database,
    *,
    teams: int,
    submissions: int,
    state: str = "open",
    rng_seed: int = 1,
    storage: Storage | None = None,
) -> Seeded:
    """Fill `database`, which is migrated and empty. The team named `ada` is the participant's."""
    rng = random.Random(rng_seed)
    at = now()
    rows = _Rows(rng, at, teams=teams, submissions=submissions, state=state)
    if storage:
        storage.write(content_key(CODE_SHA256), CODE)
        rows.hashes = {key: storage.write(key, content) for key, content in rows.outputs()}
    with database.engine.begin() as connection:
        for table, values in rows.all():
            _insert(connection, table, values)
    return rows.seeded()


def _insert(connection: Connection, table: type[Base], values: Iterator[dict[str, Any]]) -> None:
    while some := list(islice(values, BATCH)):
        connection.execute(insert(table), some)


class _Rows:
    """The rows of every table, in an order that foreign keys allow."""

    def __init__(self, rng: random.Random, at: datetime, *, teams: int, submissions: int, state: str) -> None:
        self.rng, self.at, self.state = rng, at, state
        self.numpy = np.random.default_rng(rng.randrange(2**32))
        self.teams, self.submissions = teams, submissions
        self.file = parse_competition(EXAMPLE.read_text())
        self.password_hash = hash_password(PASSWORD)
        self.skill = [rng.betavariate(2, 3) * 0.19 for _ in range(teams)]
        self.made = list(self._submissions())
        self.hashes: dict[str, str] = {}  # of stored outputs, by key

    def all(self) -> Iterator[tuple[type[Base], Iterator[dict[str, Any]]]]:
        yield Account, self._accounts()
        yield Competition, iter([self._competition()])
        yield CompetitionOrganiser, iter([{"competition_id": "c", "account_id": "organiser"}])
        yield Split, self._splits()
        yield Team, self._teams()
        yield Membership, self._memberships()
        yield Submission, iter(self.made)
        yield Evaluation, (self._evaluation(s) for s in self.made)
        yield PublicScore, (self._score(s) for s in self.made if s["stage"] == "scored")
        yield Shard, self._shards()
        yield ShardAttempt, self._attempts()

    def seeded(self) -> Seeded:
        def newest(stage: str) -> str:
            return next((s["id"] for s in reversed(self.made) if s["stage"] == stage and s["team_id"] == "t0"), "")

        return Seeded(
            slug=self.file.slug,
            competition_id="c",
            password=PASSWORD,
            organiser="grace",
            participant="ada",
            own_team_id="t0",
            running_submission_id=newest("running"),
            failed_submission_id=newest("failed"),
            scored_submission_id=newest("scored"),
        )

    def _accounts(self) -> Iterator[dict[str, Any]]:
        yield self._account("organiser", "grace", Role.ORGANISER)
        yield self._account("admin", "margaret", Role.ADMINISTRATOR)
        for number in range(self.teams):
            yield self._account(f"a{number}", self._name(number), Role.PARTICIPANT)

    def _account(self, account_id: str, name: str, role: Role) -> dict[str, Any]:
        return {
            "id": account_id,
            "name": name,
            "name_key": name.casefold(),
            "email": None,
            "password_hash": self.password_hash,
            "role": role.value,
            "created_at": self.at - timedelta(weeks=WEEKS),
        }

    def _name(self, number: int) -> str:
        if number == 0:
            return "ada"
        rounds, place = divmod(number, len(ADJECTIVES) * len(NOUNS))
        name = f"{ADJECTIVES[place % len(ADJECTIVES)]}-{NOUNS[place // len(ADJECTIVES)]}"
        return f"{name}-{rounds + 1}" if rounds else name

    def _competition(self) -> dict[str, Any]:
        opens, closes = self.at - timedelta(weeks=WEEKS), self.at + timedelta(days=9, hours=5)
        file = self.file.model_copy(update={"opens_at": opens, "closes_at": closes})
        return {
            "id": "c",
            "slug": file.slug,
            "title": file.title,
            "summary": file.summary,
            "state": self.state,
            "opens_at": opens,
            "closes_at": closes,
            "config": file.model_dump(mode="json"),
            "source": EXAMPLE.read_text(),
            "created_by": "organiser",
            "created_at": opens,
        }

    def _splits(self) -> Iterator[dict[str, Any]]:
        for visibility, oracle in (("public", ORACLE_SCORE), ("private", 0.18712)):
            yield {
                "id": visibility,
                "competition_id": "c",
                "visibility": visibility,
                "state": "ready",
                "manifest_sha256": "0" * 64,
                "n_forget": N_FORGET,
                "retraining_time_s": 0.4,
                "oracle": {"final_score": oracle},
                "prepared_at": self.at - timedelta(weeks=WEEKS),
            }

    def _teams(self) -> Iterator[dict[str, Any]]:
        for number in range(self.teams):
            name = "fine-tuning" if number == 1 else self._name(number)
            yield {
                "id": f"t{number}",
                "competition_id": "c",
                "name": name,
                "name_key": name.casefold(),
                "leader_id": f"a{number}",
                "is_baseline": number == 1,
                "disqualified_at": self.at if number == 7 else None,
            }

    def _memberships(self) -> Iterator[dict[str, Any]]:
        for number in range(self.teams):
            yield {"team_id": f"t{number}", "account_id": f"a{number}", "competition_id": "c"}

    def _submissions(self) -> Iterator[dict[str, Any]]:
        span = timedelta(weeks=WEEKS).total_seconds()
        for number in range(self.submissions):
            team = number % self.teams
            received = self.at - timedelta(seconds=span * (1 - number / self.submissions) + self.rng.random() * 60)
            yield self._submission(number, team, received, stage=self._stage(number, team))

    def _stage(self, number: int, team: int) -> str:
        last_round = number >= self.submissions - self.teams
        if last_round and team in (0, 3, 4):
            return "running"
        if last_round and team in (5, 6):
            return "queued"
        if team == 0 and number == self.submissions - 2 * self.teams:
            return "failed"
        return "failed" if self.rng.random() < 0.07 else "scored"

    def _submission(self, number: int, team: int, received: datetime, *, stage: str) -> dict[str, Any]:
        error_class, error = ERRORS[number % len(ERRORS)] if stage == "failed" else (None, None)
        ended = stage in ("scored", "failed")
        return {
            "id": f"s{number}",
            "competition_id": "c",
            "team_id": f"t{team}",
            "account_id": f"a{team}",
            "filename": "submission.py",
            "kind": "py",
            "content_sha256": CODE_SHA256,
            "size_bytes": len(CODE),
            "entry_point": {"file": "submission.py", "function": "unlearning", "style": "dict", "keywords": []},
            "message": NOTES[(number + number // self.teams) % len(NOTES)],
            "received_at": received,
            "stage": stage,
            "fault": "participant" if stage == "failed" else None,
            "error_class": error_class,
            "error": error,
            "refunded": False,
            "finished_at": received + timedelta(minutes=3) if ended else None,
        }

    def _evaluation(self, submission: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"e{submission['id'][1:]}",
            "submission_id": submission["id"],
            "split_id": "public",
            "scorer_version": SCORER_VERSION,
            "state": submission["stage"],
            "n_runs": self.file.n_models,
            "created_at": submission["received_at"],
            "started_at": submission["received_at"] if submission["stage"] != "queued" else None,
            "finished_at": submission["finished_at"],
            "fault": submission["fault"],
            "error_class": submission["error_class"],
            "error": submission["error"],
        }

    def _score(self, submission: dict[str, Any]) -> dict[str, Any]:
        team = int(submission["team_id"][1:])
        value = max(0.0, self.skill[team] * (1 - math.exp(-self.rng.expovariate(0.7))) + self.rng.gauss(0, 0.002))
        return {
            "evaluation_id": f"e{submission['id'][1:]}",
            "submission_id": submission["id"],
            "final_score": value,
            "forgetting_quality": value / 0.97,
            "retain_ratio": 0.99,
            "test_ratio": 0.98,
            "interval_low": value * 0.9,
            "interval_high": value * 1.1,
            "scorer_version": SCORER_VERSION,
            "details": self._details(value),
            "replicates": self._replicates(submission, value),
            "epsilon": self.numpy.gamma(1.2, 6.0 * (0.25 - value), N_FORGET).astype("<f4").tobytes(),
            "computed_at": submission["finished_at"],
        }

    def _details(self, value: float) -> dict[str, Any]:
        median = 5.0 * (0.25 - value)
        return {
            "epsilon_percentiles": {"5": 0.1 * median, "50": median, "95": 3.0 * median},
            "n_forget": N_FORGET,
            "run_wall_time_s": 0.31,
            "flags": {"deterministic": False, "copied": False, "leaked": value > ORACLE_SCORE},
        }

    def _replicates(self, submission: dict[str, Any], value: float) -> dict[str, Any] | None:
        """Return replicates for the newest submissions: each is some hundred bytes."""
        if int(submission["id"][1:]) < self.submissions - 3 * self.teams:
            return None
        values = (value + 0.006 * self.numpy.normal(size=20)).tolist()
        return {"forgetting_quality": values, "headline": values, "factor": 1.0, "seed": 0, "n_models": 512}

    def outputs(self) -> Iterator[tuple[str, bytes]]:
        """Yield key and content of stored outputs: of the retrained models, and of some scored submissions."""
        yield RETRAINED_KEY, self._outputs(self.file.n_models, shift=0.0)
        for _, submission in self._running():
            if submission["stage"] == "scored":
                for place, first in enumerate(range(0, self.file.n_models, self.file.shard_runs)):
                    n_runs = min(self.file.shard_runs, self.file.n_models - first)
                    yield _result_key(submission, place), self._outputs(n_runs, shift=0.6)

    def _outputs(self, n: int, *, shift: float) -> bytes:
        levels = np.linspace(-1.0, 5.0, N_FORGET)
        accuracy = self.numpy.normal((0.97 - shift / 40, 0.93 - shift / 30), 0.01, (n, 2)).clip(0, 1)
        classes = self.numpy.normal(0.95 - shift / 25, 0.02, (n, 2, 10)).clip(0, 1)
        arrays = {
            "confidences": levels + shift * self.numpy.random(N_FORGET) + self.numpy.normal(0, 0.7, (n, N_FORGET)),
            "retain_accuracy": accuracy[:, 0].copy(),
            "test_accuracy": accuracy[:, 1].copy(),
            "wall_time_s": self.numpy.gamma(40.0, 0.0078, n),
            "class_accuracy": classes.astype(np.float32),
        }
        return save(arrays)

    def _running(self) -> Iterator[tuple[int, dict[str, Any]]]:
        runs = [s for s in self.made if s["stage"] == "running"]
        newest = [s for s in self.made if s["team_id"] == "t0" and s["stage"] in ("scored", "failed")][-3:]
        yield from enumerate((*newest, *runs))

    def _shards(self) -> Iterator[dict[str, Any]]:
        size = self.file.shard_runs
        for number, submission in self._running():
            ended = submission["stage"] != "running"
            for place, first in enumerate(range(0, self.file.n_models, size)):
                done = ended or place < 3
                leased = not ended and place == 3
                yield {
                    "id": 1 + number * 100 + place,
                    "evaluation_id": f"e{submission['id'][1:]}",
                    "team_id": submission["team_id"],
                    "split_id": "public",
                    "competition_id": "c",
                    "kind": "runs",
                    "first_run": first,
                    "n_runs": min(size, self.file.n_models - first),
                    "state": "done" if done else "leased" if leased else "queued",
                    "attempt": 2 if place == 1 else 1 if done or leased else 0,
                    "worker": "worker-1" if done or leased else None,
                    "lease_expires_at": self.at + timedelta(minutes=5) if leased else None,
                    "runs_done": size if done else size // 3 if leased else 0,
                    "result_key": _result_key(submission, place) if ended else None,
                    "result_sha256": self.hashes.get(_result_key(submission, place)) if ended else None,
                    "queued_at": submission["received_at"],
                }

    def _attempts(self) -> Iterator[dict[str, Any]]:
        for number, submission in self._running():
            ended = submission["stage"] != "running"
            start = submission["received_at"] if ended else self.at - timedelta(minutes=4)
            for place in range(8 if ended else 4):
                began = start + timedelta(seconds=20 * place)
                common = {"shard_id": 1 + number * 100 + place, "worker": "worker-1"}
                if place == 1:
                    yield {
                        **common,
                        "attempt": 1,
                        "started_at": began,
                        "ended_at": began + timedelta(seconds=9),
                        "outcome": "lost",
                    }
                leased = not ended and place == 3
                yield {
                    **common,
                    "attempt": 2 if place == 1 else 1,
                    "started_at": began + timedelta(seconds=10),
                    "ended_at": None if leased else began + timedelta(seconds=19),
                    "outcome": "running" if leased else "done",
                }


def _result_key(submission: dict[str, Any], place: int) -> str:
    return f"results/{submission['id']}/{place}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--storage-url", help="where the code of the submissions is put")
    parser.add_argument("--teams", type=int, default=40)
    parser.add_argument("--submissions", type=int, default=400)
    parser.add_argument("--state", default="open")
    options = parser.parse_args()
    upgrade(options.database_url)
    database = Database(options.database_url)
    storage = Storage(options.storage_url) if options.storage_url else None
    made = seed(database, teams=options.teams, submissions=options.submissions, state=options.state, storage=storage)
    print(made)
    database.dispose()


if __name__ == "__main__":
    main()
