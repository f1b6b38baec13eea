"""A score as a competition's file defines it."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from lethe.competition.file import CompetitionFile, Scoring
from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metric
from lethe.metrics.forgetting.final_score import ScoreParameters
from lethe.metrics.scoring.resampling import MIN_MODELS
from lethe.metrics.scoring.score import ModelOutputs, Score, score

ORACLE = "oracle"
OFFLINE_SEED = 0  # where nobody has anything to hide from: a kit's sample, a benchmark, a search


def score_outputs(
    unlearned: ModelOutputs, retrained: ModelOutputs, *, scoring: Scoring, attack_seed: int = OFFLINE_SEED
) -> Score:
    """Score as the competition's section [scoring] says. Too few models for a spread have no interval.

    attack_seed: of the halves of the models that rules are fitted and judged on; see `secret_attack_seed`.
    """
    enough = unlearned.confidences.shape[0] >= MIN_MODELS
    return score(
        unlearned,
        retrained,
        attacks=scoring.attacks,
        delta=scoring.delta,
        cap=scoring.epsilon_cap,
        n_resamples=scoring.bootstrap_resamples if enough else 0,
        attack_seed=None if scoring.attacks.is_published else attack_seed,  # published ones have fixed halves,
    )


def secret_attack_seed(file: CompetitionFile, visibility: Visibility, subject: str) -> int:
    """Return the seed, in [0, 2**63), of the halves on which an entry is judged on a split.

    It is an HMAC of the subject under the split's secret seed, which only organisers have before the close. So nobody
    can aim at the halves, every code has its own, and whoever has the competition's file computes the score again.
    subject: the SHA-256 of the submitted code, or ORACLE.
    """
    key = f"lethe-halves/{file.slug}/{visibility.value}/{file.splits.seed}".encode()
    return int.from_bytes(hmac.digest(key, subject.encode(), hashlib.sha256)[:8], "big") >> 1


def with_attack_seed(metric_id: str, parameters: Mapping[str, Any], attack_seed: int) -> dict[str, Any]:
    """Return a metric's parameters; of one that draws halves of its own, with the competition's secret seed."""
    draws = issubclass(metric(metric_id).defaults, ScoreParameters)
    return {"seed": attack_seed, **parameters} if draws else dict(parameters)
