"""The rows of submissions, of their evaluations and scores, and of the shards of those that run or are looked at."""

import hashlib
import math
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks.web.names import ERRORS, NOTES
from benchmarks.web.people import N_FORGET, ORACLE_SCORE, WEEKS, Row
from lethe.competition.file import CompetitionFile
from server.evaluations.evaluations import SCORER_VERSION
from server.metric_results.metric_results import hash_parameters

CODE = (Path(__file__).parents[2] / "examples" / "submissions" / "finetune.py").read_bytes()
ABOVE_ORACLE = 8  # number of the team that scores above exact retraining
CODE_SHA256 = hashlib.sha256(CODE).hexdigest()


class Sent:
    """What the teams sent, and what became of it. Private scores are there only after the end."""

    def __init__(
        self, rng: random.Random, at: datetime, *, file: CompetitionFile, teams: int, submissions: int, is_over: bool
    ) -> None:
        self.rng, self.at, self.file = rng, at, file
        self.teams, self.submissions, self.is_over = teams, submissions, is_over
        self.numpy = np.random.default_rng(rng.randrange(2**32))
        self.skill = [rng.betavariate(2, 3) for _ in range(teams)]
        self.skill[ABOVE_ORACLE % teams] = 1.5
        self.rows = list(self._rows())
        for submission in self.finals():
            submission["selected"] = True

    def newest(self, stage: str, *, before: int = 0) -> str:
        """Return the id of the first team's newest submission in a stage but for `before`; empty if there is none."""
        own = [s["id"] for s in reversed(self.rows) if s["stage"] == stage and s["team_id"] == "t0"]
        return own[before] if before < len(own) else ""

    def looked_at(self) -> list[Row]:
        """Return the submissions whose runs are there one by one: the first team's newest, and what runs now."""
        runs = [s for s in self.rows if s["stage"] == "running"]
        newest = [s for s in self.rows if s["team_id"] == "t0" and s["stage"] in ("scored", "failed")][-3:]
        return [*newest, *runs]

    def evaluations(self) -> Iterator[Row]:
        for submission in self.rows:
            yield self._evaluation(submission)
        for submission in self.finals():
            yield self._evaluation(submission) | {"id": f"p{submission['id'][1:]}", "split_id": "private"}

    def scores(self) -> Iterator[Row]:
        for submission in self.rows:
            if submission["stage"] == "scored":
                yield self._score(submission)

    def metric_results(self) -> Iterator[Row]:
        """Yield the metrics of the competition's report for every scored submission."""
        draws = np.random.default_rng(len(self.rows))  # of its own: the other rows stay what they are
        for submission in self.rows:
            if submission["stage"] != "scored":
                continue
            skill = self.skill[int(submission["team_id"][1:])]
            for request in self.file.report.metrics:
                value = float(0.25 * max(0.01, 1.0 - skill) * draws.uniform(0.8, 1.2))
                yield {
                    "evaluation_id": f"e{submission['id'][1:]}",
                    "metric_id": request.id,
                    "parameters": request.parameters,
                    "parameters_sha256": hash_parameters(request.parameters),
                    "metric_version": 1,
                    "value": value,
                    "interval_low": 0.9 * value,
                    "interval_high": 1.1 * value,
                    "oracle": 0.01,
                    "original": 0.3,
                    "computed_at": submission["finished_at"],
                }

    def private_scores(self) -> Iterator[Row]:
        for submission in self.finals():
            yield self._score(submission) | {"evaluation_id": f"p{submission['id'][1:]}"}

    def finals(self) -> list[Row]:
        """Return the newest scored submission of each team, once the competition is over."""
        newest = {s["team_id"]: s for s in self.rows if s["stage"] == "scored"} if self.is_over else {}
        return list(newest.values())

    def _rows(self) -> Iterator[Row]:
        span = timedelta(weeks=WEEKS).total_seconds()
        newest = self.at - timedelta(days=2) if self.is_over else self.at
        for number in range(self.submissions):
            team = number % self.teams
            received = newest - timedelta(seconds=span * (1 - number / self.submissions) + self.rng.random() * 60)
            yield self._submission(number, team, received, stage=self._stage(number, team))

    def _stage(self, number: int, team: int) -> str:
        last_round = number >= self.submissions - self.teams and not self.is_over
        if last_round and team in (0, 3, 4):
            return "running"
        if last_round and team in (5, 6):
            return "queued"
        if team == 0 and number == self.submissions - 2 * self.teams:
            return "failed"
        return "failed" if self.rng.random() < 0.07 else "scored"

    def _submission(self, number: int, team: int, received: datetime, *, stage: str) -> Row:
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
            "selected": False,
            "finished_at": received + timedelta(minutes=3) if ended else None,
        }

    def _evaluation(self, submission: Row) -> Row:
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

    def _score(self, submission: Row) -> Row:
        team = int(submission["team_id"][1:])
        value = self.skill[team] * (1 - math.exp(-self.rng.expovariate(0.7))) + self.rng.gauss(0, 0.01)
        value = min(1.0, max(0.0, value))
        return {
            "evaluation_id": f"e{submission['id'][1:]}",
            "submission_id": submission["id"],
            "final_score": value,
            "is_unconfirmed": value > ORACLE_SCORE,
            "forgetting_quality": min(1.0, value / 0.97),
            "retain_ratio": 0.99,
            "test_ratio": 0.98,
            "interval_low": value * 0.9,
            "interval_high": min(1.0, value * 1.1),
            "scorer_version": SCORER_VERSION,
            "details": self._details(value),
            "replicates": self._replicates(submission, value),
            "epsilon": self.numpy.gamma(1.2, 1.2 * (1.25 - value), N_FORGET).astype("<f4").tobytes(),
            "computed_at": submission["finished_at"],
        }

    def _details(self, value: float) -> Row:
        median = 1.25 - value
        return {
            "epsilon_percentiles": {
                str(level): factor * median
                for level, factor in ((0, 0.02), (5, 0.1), (25, 0.5), (50, 1.0), (75, 1.7), (95, 3.0), (100, 5.0))
            },
            "n_forget": N_FORGET,
            "run_wall_time_s": 0.31,
            "flags": _flags(value),
        }

    def _replicates(self, submission: Row, value: float) -> Row | None:
        """Return replicates for the newest submissions: each is some hundred bytes."""
        if int(submission["id"][1:]) < self.submissions - 3 * self.teams:
            return None
        values = (value + 0.006 * self.numpy.normal(size=20)).tolist()
        return {"forgetting_quality": values, "headline": values, "factor": 1.0, "seed": 0, "n_models": 512}


def _flags(value: float) -> Row:
    reasons = ["The score is above exact retraining's 95 % interval."] if value > ORACLE_SCORE else []
    return {"disagreement": 0.02, "reasons": reasons, "suspect": bool(reasons), "held": bool(reasons)}
