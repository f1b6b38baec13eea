"""What a score is made of: which factor cost how much against exact retraining, and one sentence of advice.

It is computed from a few numbers of each side, never from single examples, so that it tells no more than they do.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.metrics.scoring.arrays import Float64
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, AttackFamily

if TYPE_CHECKING:  # the web server explains scores, and its image has not what computing them needs
    from lethe.metrics.scoring.score import ModelOutputs, Score

LEVELS = (0, 5, 25, 50, 75, 95, 100)
FACTORS = {"forgetting_quality": "forgetting", "retain_ratio": "retain", "test_ratio": "test"}
NARROW, WIDE = 0.7, 1.4  # spread over models, of the retrained models'
MAX_SHARE = 0.7  # share of the examples that are on one side
BUCKET = 0.5  # nats: a difference within it costs half of an example's points at most

RULES = {
    "none": "Nothing is lost against exact retraining here: try it with more models, or submit it.",
    "retain": "Accuracy on the retain set costs most: train longer on the retain set, or disturb the weights less.",
    "test": "Accuracy on the test set costs most: disturb the weights less, or train on the retain set with fewer "
    "epochs, a smaller learning rate or more weight decay.",
    "narrow": "Your models differ less from one another than retrained ones do: add randomness, such as noise on the "
    "weights or redrawn weights before the training on the retain set.",
    "wide": "Your models differ more from one another than retrained ones do: use less noise, or train longer on the "
    "retain set.",
    "remembered": "Your models are surer of most forget examples than retrained ones: forget more, by more noise, a "
    "larger learning rate or more steps.",
    "over-forgotten": "Your models are less sure of most forget examples than retrained ones, which tells them apart "
    "as well: forget less, and train longer on the retain set.",
    "tail": "Half of the examples are forgotten nearly as by retraining, and the rest cost the most: change what moves "
    "all examples, such as noise on every layer.",
    "forgetting": "Forgetting costs most: move the weights further from the original model, then train on the retain "
    "set.",
}


@dataclass(frozen=True)
class ScoreParts:
    """The numbers of one score that an explanation needs.

    epsilon_percentiles: nats, by level as text; empty where not stored. spread_ratio: median over the forget examples
    of the standard deviation over unlearned models, of that over retrained ones. share_above: of the forget examples,
    those with a higher mean confidence than that of retrained models. Both None where not stored. attacks: which the
    score was made by.
    """

    forgetting_quality: float
    retain_ratio: float
    test_ratio: float
    epsilon_percentiles: Mapping[str, float] = field(default_factory=dict)
    spread_ratio: float | None = None
    share_above: float | None = None
    attacks: AttackFamily = DEFAULT_ATTACKS

    @property
    def factors(self) -> dict[str, float]:
        """The factors as they count: a ratio of utility up to the family's largest."""
        return {name: min(getattr(self, name), self.attacks.largest_ratio) for name in FACTORS}

    @property
    def final_score(self) -> float:
        return math.prod(self.factors.values())


@dataclass(frozen=True)
class Difference:
    """How a score differs from another one: own value less the other's, of the score and of each factor, as counted."""

    score: float
    factors: dict[str, float]


@dataclass(frozen=True)
class Explanation:
    """What cost how much. costs: by factor, its share of log(oracle / own), 0 where nothing is lost; they add to 1.

    log_loss: nats, what is lost against exact retraining in all; infinity where a factor is 0. differences: by what is
    compared with.
    """

    own: ScoreParts
    oracle: ScoreParts | None
    costs: dict[str, float]
    log_loss: float
    differences: dict[str, Difference]
    rule: str

    @property
    def advice(self) -> str:
        return RULES[self.rule]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values; an infinite loss as None."""
        return asdict(self) | {
            "advice": self.advice,
            "log_loss": self.log_loss if math.isfinite(self.log_loss) else None,
        }

    def lines(self) -> list[str]:
        """Return the explanation as lines of text."""
        oracle = self.oracle
        found = ["factor      yours  oracle   cost"]
        for name, label in FACTORS.items():
            other = "     –" if oracle is None else f"{getattr(oracle, name):6.3f}"
            found.append(f"{label:10} {getattr(self.own, name):6.3f}  {other}  {self.costs[name]:4.0%}")
        for label, parts in (("yours", self.own), ("oracle", oracle)):
            if parts is not None and parts.epsilon_percentiles:
                spread = ", ".join(f"{parts.epsilon_percentiles[str(level)]:.2f}" for level in LEVELS)
                found.append(f"epsilon over examples, {label:6} (levels {', '.join(map(str, LEVELS))} %): {spread}")
        for name, difference in self.differences.items():
            parts_of = ", ".join(f"{FACTORS[key]} {value:+.3f}" for key, value in difference.factors.items())
            found.append(f"against {name}: score {difference.score:+.4f} ({parts_of})")
        return [*found, f"advice: {self.advice}"]


def score_parts(found: "Score", unlearned: "ModelOutputs", retrained: "ModelOutputs") -> ScoreParts | None:
    """Return the parts of a score; None where it was computed without accuracies."""
    if found.retain_ratio is None or found.test_ratio is None:
        return None
    return ScoreParts(
        found.forgetting_quality,
        found.retain_ratio,
        found.test_ratio,
        epsilon_percentiles(found.epsilon),
        attacks=found.attacks,
        **confidence_ratios(unlearned, retrained),
    )


def epsilon_percentiles(epsilon: Float64) -> dict[str, float]:
    """Return how the examples' epsilons are spread: nats, by level. epsilon: shape (n_examples,)."""
    values = np.percentile(epsilon, LEVELS)
    return {str(level): float(value) for level, value in zip(LEVELS, values, strict=True)}


def confidence_ratios(unlearned: "ModelOutputs", retrained: "ModelOutputs") -> dict[str, float | None]:
    """Return spread_ratio and share_above (see `ScoreParts`). Confidences: shape (n_models, n_examples)."""
    spread = retrained.confidences.std(axis=0)
    varies = spread > 0.0
    ratio = float(np.median(unlearned.confidences.std(axis=0)[varies] / spread[varies])) if varies.any() else None
    above = unlearned.confidences.mean(axis=0) > retrained.confidences.mean(axis=0)
    return {"spread_ratio": ratio, "share_above": float(above.mean())}


def explain(own: ScoreParts, *, oracle: ScoreParts | None, others: Mapping[str, ScoreParts | None]) -> Explanation:
    """Return what a score is made of beside exact retraining and beside others, by name; None is left out.

    Without an oracle the loss is that against 1, which every factor of retraining is near, but the first one of a
    published family.
    """
    losses = {
        name: _loss(value, 1.0 if oracle is None else oracle.factors[name]) for name, value in own.factors.items()
    }
    costs = _shares(losses)
    return Explanation(
        own=own,
        oracle=oracle,
        costs=costs,
        log_loss=sum(losses.values()),
        differences={name: _difference(own, other) for name, other in others.items() if other is not None},
        rule=_rule(own, oracle, costs),
    )


def _loss(own: float, oracle: float) -> float:
    if own <= 0.0:
        return math.inf if oracle > 0.0 else 0.0
    return max(0.0, math.log(oracle / own)) if oracle > 0.0 else 0.0


def _shares(losses: Mapping[str, float]) -> dict[str, float]:
    """Return each loss as a share of all; infinite ones share everything among them."""
    if any(math.isinf(loss) for loss in losses.values()):
        losses = {name: float(math.isinf(loss)) for name, loss in losses.items()}
    total = sum(losses.values())
    return {name: loss / total if total else 0.0 for name, loss in losses.items()}


def _difference(own: ScoreParts, other: ScoreParts) -> Difference:
    factors = {name: value - other.factors[name] for name, value in own.factors.items()}
    return Difference(own.final_score - other.final_score, factors)


def _rule(own: ScoreParts, oracle: ScoreParts | None, costs: Mapping[str, float]) -> str:
    worst = max(costs, key=lambda name: costs[name])
    if costs[worst] == 0.0:
        return "none"
    return FACTORS[worst] if worst != "forgetting_quality" else _forgetting_rule(own, oracle)


def _forgetting_rule(own: ScoreParts, oracle: ScoreParts | None) -> str:
    spread, above = own.spread_ratio, own.share_above
    if spread is not None and not NARROW <= spread <= WIDE:
        return "narrow" if spread < NARROW else "wide"
    if above is not None and not 1.0 - MAX_SHARE <= above <= MAX_SHARE:
        return "remembered" if above > MAX_SHARE else "over-forgotten"
    middle = own.epsilon_percentiles.get("50")
    aim = None if oracle is None else oracle.epsilon_percentiles.get("50")
    return "tail" if middle is not None and aim is not None and middle <= aim + BUCKET else "forgetting"
