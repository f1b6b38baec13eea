"""How well a softmax attack tells forget from test examples."""

from dataclasses import replace

from lethe.metrics import mia_forget_retain
from lethe.metrics.array_catalogue import Side
from lethe.metrics.membership_features import FORGET_TEST_ATTACK
from lethe.metrics.registry import Need

METRIC = replace(
    mia_forget_retain.METRIC,
    id="mia_forget_test",
    title="Softmax attack, forget against test",
    needs={"unlearned": Need(FORGET_TEST_ATTACK), "retrained": Need(FORGET_TEST_ATTACK, Side.RETRAINED)},
)
