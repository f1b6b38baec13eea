"""How well a softmax attack tells test from retain examples."""

from dataclasses import replace

from lethe.metrics import mia_forget_retain
from lethe.metrics.array_catalogue import Side
from lethe.metrics.membership_features import TEST_RETAIN_ATTACK
from lethe.metrics.registry import Need

METRIC = replace(
    mia_forget_retain.METRIC,
    id="mia_test_retain",
    title="Softmax attack, test against retain",
    needs={"unlearned": Need(TEST_RETAIN_ATTACK), "retrained": Need(TEST_RETAIN_ATTACK, Side.RETRAINED)},
)
