"""KLOM on the retain set: whether utility changed the way retraining changes it."""

from dataclasses import replace

from lethe.metrics import klom
from lethe.metrics.array_catalogue import Side
from lethe.metrics.registry import Need

METRIC = replace(
    klom.METRIC,
    id="klom_retain",
    title="KLOM on the retain set",
    needs={"unlearned": Need("retain_margins"), "retrained": Need("retain_margins", Side.RETRAINED)},
    formula="as klom, over the examples of the retain set",
)
