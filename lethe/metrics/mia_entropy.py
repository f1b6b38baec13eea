"""How well an attack on the entropy of the prediction tells forget from test examples."""

from dataclasses import replace

from lethe.metrics import mia_loss
from lethe.metrics.array_catalogue import Side
from lethe.metrics.membership_features import ENTROPY_ATTACK
from lethe.metrics.registry import Need

METRIC = replace(
    mia_loss.METRIC,
    id="mia_entropy",
    title="Entropy attack",
    needs={"unlearned": Need(ENTROPY_ATTACK), "retrained": Need(ENTROPY_ATTACK, Side.RETRAINED)},
    formula="as mia_loss, on the entropy of the softmax vector in nats",
)
