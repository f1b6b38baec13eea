"""Fill a database with an open competition of many teams, as after weeks of use."""

import hashlib
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from sqlalchemy import insert

from lethe.competition.file import CompetitionFile, parse_competition
from server.accounts import accounts, sessions
from server.accounts.passwords import hash_password
from server.db import Base, Database, now
from server.evaluations.evaluations import SCORER_VERSION
from server.metric_results.metric_results import hash_parameters
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionOrganiser, Membership, Split, Team
from server.models.evaluation import Evaluation, MetricResult, PublicScore, RunLog, Shard, ShardAttempt
from server.models.submission import Submission
from server.models.worker import Worker
from server.storage import Storage, content_key
from server.web.cookies import SESSION_COOKIE

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "competitions" / "digits.toml"
CODE = (EXAMPLES / "submissions" / "finetune.py").read_bytes()
CODE_SHA256 = hashlib.sha256(CODE).hexdigest()
PASSWORD = "correct horse battery"
ORACLE_SCORE = 0.98871
WEEKS, N_FORGET = 4, 36
ABOVE_ORACLE = 8  # number of the team that scores above exact retraining
RETRAINED_KEY = "splits/digits/public/hidden/retrained/outputs.safetensors"
PRINTED = "epoch 1, loss 0.4127\nepoch 2, loss 0.2291\n"
ADJECTIVES = tuple("amber brisk calm deft eager frank gentle hazel ionic jolly keen lucid mellow noble opal".split())  # noqa: SIM905
NOUNS = tuple("river heron lantern meadow orbit pebble quartz ridge sparrow thicket umbra valley willow".split())  # noqa: SIM905
NOTES = (
    *("lower learning rate", "noise on the last block, then two epochs", "prune 5 %, fine-tune", "freeze batch norm"),
    *("gradient ascent for one step", "", "layer-wise rates", "cosine schedule"),
)
RAISED = {"message": "The code raised an exception. See submission.py, line 12.", "exception_type": "KeyError"}
ERRORS = (
    ("exception", RAISED | {"file": "submission.py", "line": 12}),
    ("timeout", {"message": "The run was stopped after 5 s, the wall time of one run. Do fewer epochs or steps."}),
    ("non-finite-weights", {"message": "The unlearned model holds NaN or infinity. The first is in 'fc.weight'."}),
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Seeded:
    """What a test needs to know of the seeded competition."""

    slug: str
    running_submission_id: str
    failed_submission_id: str
    scored_submission_id: str
    other_scored_submission_id: str
    competition_id: str = "c"
    password: str = PASSWORD
    organiser: str = "grace"
    participant: str = "ada"
    own_team_id: str = "t0"


def name_for(number: int) -> str:
    """Return the name of a team, and of the person who leads it. The first is `ada`."""
    return f"{ADJECTIVES[number % len(ADJECTIVES)]}-{NOUNS[number // len(ADJECTIVES)]}" if number else "ada"


class People:
    """Accounts, the competition with its splits, teams. `at` is the moment at which all of it is looked at."""

    def __init__(self, at: datetime, *, file: CompetitionFile, teams: int) -> None:
        self.at, self.file, self.teams = at, file, teams
        self.password_hash = hash_password(PASSWORD)
        self.opens_at, self.closes_at = at - timedelta(weeks=WEEKS), at + timedelta(days=9, hours=5)

    def accounts(self) -> Iterator[Row]:
        staff = [("organiser", "grace", Role.ORGANISER), ("admin", "margaret", Role.ADMINISTRATOR)]
        people = ((f"a{number}", name_for(number), Role.PARTICIPANT) for number in range(self.teams))
        for account_id, name, role in (*staff, *people):
            own: Row = {"id": account_id, "name": name, "name_key": name.casefold(), "role": role.value}
            yield own | {"email": None, "password_hash": self.password_hash, "created_at": self.opens_at}

    def competition(self) -> Row:
        times = {"opens_at": self.opens_at, "closes_at": self.closes_at}
        config = self.file.model_copy(update=times).model_dump(mode="json")
        told = {"slug": self.file.slug, "title": self.file.title, "summary": self.file.summary}
        made = {"source": EXAMPLE.read_text(), "created_by": "organiser", "created_at": self.opens_at}
        return {"id": "c", "state": "open", "config": config, **told, **times, **made}

    def splits(self) -> Iterator[Row]:
        for visibility, oracle in (("public", ORACLE_SCORE), ("private", 0.98512)):
            own = {"id": visibility, "visibility": visibility, "oracle": {"final_score": oracle}}
            ready = {"state": "ready", "manifest_sha256": "0" * 64, "n_forget": N_FORGET, "retraining_time_s": 40.0}
            yield {"competition_id": "c", "prepared_at": self.opens_at, **own, **ready}

    def team_rows(self) -> Iterator[Row]:
        for number in range(self.teams):
            name = "fine-tuning" if number == 1 else name_for(number)
            ids = {"id": f"t{number}", "competition_id": "c", "leader_id": f"a{number}"}
            state = {"is_baseline": number == 1, "disqualified_at": self.at if number == 7 else None}
            yield {"name": name, "name_key": name.casefold(), **ids, **state}

    def memberships(self) -> Iterator[Row]:
        for number in range(self.teams):
            yield {"team_id": f"t{number}", "account_id": f"a{number}", "competition_id": "c"}


class Sent:
    """What the teams sent, and what became of it."""

    def __init__(
        self, rng: random.Random, at: datetime, *, file: CompetitionFile, teams: int, submissions: int
    ) -> None:
        self.rng, self.at, self.file = rng, at, file
        self.teams, self.submissions = teams, submissions
        self.numpy = np.random.default_rng(rng.randrange(2**32))
        self.skill = [rng.betavariate(2, 3) for _ in range(teams)]
        self.skill[ABOVE_ORACLE % teams] = 1.5
        self.rows = list(self._rows())
        self.scored = [row for row in self.rows if row["stage"] == "scored"]

    def newest(self, stage: str, *, before: int = 0) -> str:
        """Return the id of the first team's newest submission in a stage but for `before`; empty if there is none."""
        own = [s["id"] for s in reversed(self.rows) if s["stage"] == stage and s["team_id"] == "t0"]
        return own[before] if before < len(own) else ""

    def looked_at(self) -> list[Row]:
        """Return the submissions whose runs are there one by one: the first team's newest, and what runs now."""
        newest = [s for s in self.rows if s["team_id"] == "t0" and s["stage"] in ("scored", "failed")][-3:]
        return [*newest, *(s for s in self.rows if s["stage"] == "running")]

    def evaluations(self) -> Iterator[Row]:
        yield from map(self._evaluation, self.rows)

    def scores(self) -> Iterator[Row]:
        yield from map(self._score, self.scored)

    def metric_results(self) -> Iterator[Row]:
        """Yield the metrics of the competition's report for every scored submission."""
        draws = np.random.default_rng(len(self.rows))  # of its own: the other rows stay what they are
        for submission in self.scored:
            skill = self.skill[int(submission["team_id"][1:])]
            ids = {"evaluation_id": f"e{submission['id'][1:]}", "computed_at": submission["finished_at"]}
            for request in self.file.report.metrics:
                value = float(0.25 * max(0.01, 1.0 - skill) * draws.uniform(0.8, 1.2))
                metric = {"metric_id": request.id, "parameters": request.parameters, "metric_version": 1}
                values = {"value": value, "interval_low": 0.9 * value, "interval_high": 1.1 * value}
                sha256 = hash_parameters(request.parameters)
                yield {**ids, **metric, "parameters_sha256": sha256, **values, "oracle": 0.01, "original": 0.3}

    def _rows(self) -> Iterator[Row]:
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

    def _submission(self, number: int, team: int, received: datetime, *, stage: str) -> Row:
        error_class, error = ERRORS[number % len(ERRORS)] if stage == "failed" else (None, None)
        ended = received + timedelta(minutes=3) if stage in ("scored", "failed") else None
        ids = {"id": f"s{number}", "competition_id": "c", "team_id": f"t{team}", "account_id": f"a{team}"}
        file = {"filename": "submission.py", "kind": "py", "content_sha256": CODE_SHA256, "size_bytes": len(CODE)}
        point = {"file": "submission.py", "function": "unlearning", "style": "dict", "keywords": []}
        failure = {"fault": "participant" if error else None, "error_class": error_class, "error": error}
        state = {"received_at": received, "stage": stage, "finished_at": ended, "refunded": False, "selected": False}
        message = NOTES[(number + number // self.teams) % len(NOTES)]
        return {**ids, **file, "entry_point": point, "message": message, **failure, **state}

    def _evaluation(self, submission: Row) -> Row:
        ids = {"id": f"e{submission['id'][1:]}", "submission_id": submission["id"], "split_id": "public"}
        started = submission["received_at"] if submission["stage"] != "queued" else None
        state = {"state": submission["stage"], "created_at": submission["received_at"], "started_at": started}
        copied = {name: submission[name] for name in ("finished_at", "fault", "error_class", "error")}
        return {**ids, "scorer_version": SCORER_VERSION, "n_runs": self.file.n_models, **state, **copied}

    def _score(self, submission: Row) -> Row:
        team = int(submission["team_id"][1:])
        value = self.skill[team] * (1 - math.exp(-self.rng.expovariate(0.7))) + self.rng.gauss(0, 0.01)
        value = min(1.0, max(0.0, value))
        ids = {"evaluation_id": f"e{submission['id'][1:]}", "submission_id": submission["id"]}
        parts = {"forgetting_quality": min(1.0, value / 0.97), "retain_ratio": 0.99, "test_ratio": 0.98}
        interval = {"interval_low": value * 0.9, "interval_high": min(1.0, value * 1.1)}
        arrays: Row = {"replicates": self._replicates(submission, value)}
        arrays |= {"epsilon": self.numpy.gamma(1.2, 1.2 * (1.25 - value), N_FORGET).astype("<f4").tobytes()}
        made = {"scorer_version": SCORER_VERSION, "computed_at": submission["finished_at"]}
        score = {"final_score": value, "is_unconfirmed": value > ORACLE_SCORE, "details": _details(value)}
        return {**ids, **score, **parts, **interval, **made, **arrays}

    def _replicates(self, submission: Row, value: float) -> Row | None:
        """Return replicates for the newest submissions: each is some hundred bytes."""
        if int(submission["id"][1:]) < self.submissions - 3 * self.teams:
            return None
        values = (value + 0.006 * self.numpy.normal(size=20)).tolist()
        return {"forgetting_quality": values, "headline": values, "factor": 1.0, "seed": 0, "n_models": 512}


def _details(value: float) -> Row:
    factors = {"0": 0.02, "5": 0.1, "25": 0.5, "50": 1.0, "75": 1.7, "95": 3.0, "100": 5.0}
    percentiles = {level: factor * (1.25 - value) for level, factor in factors.items()}
    reasons = ["The score is above exact retraining's 95 % interval."] if value > ORACLE_SCORE else []
    flags = {"disagreement": 0.02, "reasons": reasons, "suspect": bool(reasons), "held": bool(reasons)}
    return {"epsilon_percentiles": percentiles, "n_forget": N_FORGET, "run_wall_time_s": 0.31, "flags": flags}


class Runs:
    """Shards, attempts, logs and outputs of the submissions that are looked at one by one."""

    def __init__(self, rng: np.random.Generator, at: datetime, *, file: CompetitionFile, looked_at: list[Row]) -> None:
        self.numpy, self.at, self.file, self.looked_at = rng, at, file, looked_at
        self.hashes: dict[str, str] = {}  # of stored outputs, by key

    def outputs(self) -> Iterator[tuple[str, bytes]]:
        """Yield key and content of stored outputs: of the retrained models, and of some scored submissions."""
        yield RETRAINED_KEY, self._outputs(self.file.n_models, shift=0.0)
        for submission in self.looked_at:
            if submission["stage"] == "scored":
                for place, first in enumerate(range(0, self.file.n_models, self.file.shard_runs)):
                    n_runs = min(self.file.shard_runs, self.file.n_models - first)
                    yield _result_key(submission, place), self._outputs(n_runs, shift=0.6)

    def _outputs(self, n: int, *, shift: float) -> bytes:
        levels = np.linspace(-1.0, 5.0, N_FORGET)
        accuracy = self.numpy.normal((0.97 - shift / 40, 0.93 - shift / 30), 0.01, (n, 2)).clip(0, 1)
        classes = self.numpy.normal(0.95 - shift / 25, 0.02, (n, 2, 10)).clip(0, 1)
        confidences = levels + shift * self.numpy.random(N_FORGET) + self.numpy.normal(0, 0.7, (n, N_FORGET))
        accuracies: Row = {"retain_accuracy": accuracy[:, 0].copy(), "test_accuracy": accuracy[:, 1].copy()}
        others: Row = {"wall_time_s": self.numpy.gamma(40.0, 0.0078, n), "class_accuracy": classes.astype(np.float32)}
        return save({"confidences": confidences, **accuracies, **others})

    def shards(self) -> Iterator[Row]:
        size = self.file.shard_runs
        for number, submission in enumerate(self.looked_at):
            ended = submission["stage"] != "running"
            ids = {"evaluation_id": f"e{submission['id'][1:]}", "team_id": submission["team_id"], "kind": "runs"}
            ids |= {"split_id": "public", "competition_id": "c", "queued_at": submission["received_at"]}
            for place, first in enumerate(range(0, self.file.n_models, size)):
                done, leased = ended or place < 3, not ended and place == 3
                key = _result_key(submission, place) if ended else None
                runs = {"first_run": first, "n_runs": min(size, self.file.n_models - first)}
                runs |= {"runs_done": size if done else size // 3 if leased else 0}
                state: Row = {"state": "done" if done else "leased" if leased else "queued"}
                state |= {"attempt": 2 if place == 1 else int(done or leased)}
                state |= {"worker": "worker-1" if done or leased else None}
                state |= {"lease_expires_at": self.at + timedelta(minutes=5) if leased else None}
                result = {"result_key": key, "result_sha256": self.hashes.get(key) if key else None}
                yield {"id": 1 + number * 100 + place, **ids, **runs, **state, **result}

    def attempts(self) -> Iterator[Row]:
        for number, submission in enumerate(self.looked_at):
            ended = submission["stage"] != "running"
            start = submission["received_at"] if ended else self.at - timedelta(minutes=4)
            for place in range(8 if ended else 4):
                began = start + timedelta(seconds=20 * place)
                common = {"shard_id": 1 + number * 100 + place, "worker": "worker-1"}
                if place == 1:
                    lost = {"started_at": began, "ended_at": began + timedelta(seconds=9), "outcome": "lost"}
                    yield {**common, "attempt": 1, **lost}
                leased = not ended and place == 3
                times: Row = {"started_at": began + timedelta(seconds=10)}
                times |= {"ended_at": None if leased else began + timedelta(seconds=19)}
                yield {**common, "attempt": 2 if place == 1 else 1, **times, "outcome": "running" if leased else "done"}

    def workers(self) -> Iterator[Row]:
        machine = {"device": "cpu", "memory_mib": 15_900, "versions": {"torch": "2.9.1", "python": "3.11"}}
        for name, state in (("worker-1", "active"), ("worker-2", "draining")):
            times = {"started_at": self.at - timedelta(days=2), "seen_at": self.at}
            yield {"name": name, "state": state, **machine, "refusals": {}, **times}

    def logs(self) -> Iterator[Row]:
        """Yield what the smoke run printed, and one run on hidden data."""
        for submission in self.looked_at:
            evaluation = {"evaluation_id": f"e{submission['id'][1:]}", "created_at": submission["received_at"]}
            for on_public_sample in (True, False):
                yield evaluation | {"run": 0, "on_public_sample": on_public_sample, "text": PRINTED}


def _result_key(submission: Row, place: int) -> str:
    return f"results/{submission['id']}/{place}"


def seed(database: Database, *, teams: int, submissions: int, storage: Storage) -> Seeded:
    """Fill `database`, which is migrated and empty. The team named `ada` is the participant's."""
    at, file = now(), parse_competition(EXAMPLE.read_text())
    people = People(at, file=file, teams=teams)
    sent = Sent(random.Random(1), at, file=file, teams=teams, submissions=submissions)
    runs = Runs(sent.numpy, at, file=file, looked_at=sent.looked_at())
    storage.write(content_key(CODE_SHA256), CODE)
    runs.hashes = {key: storage.write(key, content) for key, content in runs.outputs()}
    with database.engine.begin() as connection:
        for table, rows in _tables(people, sent, runs):
            connection.execute(insert(table), list(rows))
    newest = (sent.newest("running"), sent.newest("failed"), sent.newest("scored"), sent.newest("scored", before=1))
    return Seeded(file.slug, *newest)


def _tables(people: People, sent: Sent, runs: Runs) -> Iterator[tuple[type[Base], Iterable[Row]]]:
    """Yield the rows of every table, in an order that foreign keys allow."""
    yield Account, people.accounts()
    yield Competition, [people.competition()]
    yield CompetitionOrganiser, [{"competition_id": "c", "account_id": "organiser"}]
    yield Split, people.splits()
    yield Team, people.team_rows()
    yield Membership, people.memberships()
    yield Submission, sent.rows
    yield Evaluation, sent.evaluations()
    yield PublicScore, sent.scores()
    yield MetricResult, sent.metric_results()
    yield Shard, runs.shards()
    yield ShardAttempt, runs.attempts()
    yield RunLog, runs.logs()
    yield Worker, runs.workers()


def session_cookie(database: Database, name: str) -> str:
    with database.write() as session:
        account = accounts.find(session, name)
        token = sessions.create(session, account, user_agent="test", lifetime=timedelta(hours=1))
    return f"{SESSION_COOKIE}={token}"
