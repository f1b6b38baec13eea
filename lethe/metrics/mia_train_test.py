"""How well a softmax attack tells training from test examples, whether forgotten or not."""

from dataclasses import replace

from lethe.metrics import mia_forget_retain
from lethe.metrics.array_catalogue import Side
from lethe.metrics.membership_features import TRAIN_TEST_ATTACK
from lethe.metrics.registry import Need

METRIC = replace(
    mia_forget_retain.METRIC,
    id="mia_train_test",
    title="Softmax attack, all training data against test (control)",
    needs={"unlearned": Need(TRAIN_TEST_ATTACK), "retrained": Need(TRAIN_TEST_ATTACK, Side.RETRAINED)},
)
