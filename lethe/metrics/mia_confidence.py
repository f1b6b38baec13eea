"""How well an attack on the probability of the true class tells forget from test examples."""

from dataclasses import replace

from lethe.metrics import mia_loss
from lethe.metrics.array_catalogue import Side
from lethe.metrics.membership_features import CONFIDENCE_ATTACK
from lethe.metrics.registry import Need

METRIC = replace(
    mia_loss.METRIC,
    id="mia_confidence",
    title="Confidence attack",
    needs={"unlearned": Need(CONFIDENCE_ATTACK), "retrained": Need(CONFIDENCE_ATTACK, Side.RETRAINED)},
    formula="as mia_loss, on the probability of the true class; only the regulariser tells the two apart",
)
