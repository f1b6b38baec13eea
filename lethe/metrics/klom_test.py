"""KLOM on the test set: whether utility changed the way retraining changes it."""

from dataclasses import replace

from lethe.metrics import klom
from lethe.metrics.array_catalogue import Side
from lethe.metrics.registry import Need

METRIC = replace(
    klom.METRIC,
    id="klom_test",
    title="KLOM on the test set",
    needs={"unlearned": Need("test_margins"), "retrained": Need("test_margins", Side.RETRAINED)},
    formula="as klom, over the examples of the test set",
)
