"""Attacks that read one model alone need no retrained models; forget quality takes other numbers of them."""

import numpy as np
import pytest

from lethe.metrics import Inputs, evaluate
from lethe.metrics.text.tofu import forget_quality
from tests.lethe.metrics import synthetic

ATTACKS = [
    "mia_loss", "mia_confidence", "mia_entropy", "mia_svc", "umia", "mia_confidence_classwise", "mia_forget_retain",
    "mia_forget_test", "mia_test_retain", "mia_train_test",
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_has_its_value_without_retrained_models(attack: str) -> None:
    given = Inputs(synthetic.sides()["unlearned"], shared=synthetic.split_arrays())
    alone = evaluate(given, [attack])[attack]
    beside = evaluate(synthetic.inputs(), [attack])[attack]
    assert alone.result.value == beside.result.value
    assert "no retrained models are given" in alone.result.notes[0]
    assert not beside.result.notes


def test_forget_quality_with_one_retrained_model_compares_every_run_with_it() -> None:
    random = np.random.default_rng(0)
    answers, wrong = random.exponential(size=(4, 12)), random.exponential(size=(4, 12, 3))
    one = forget_quality(answers[:3], wrong[:3], answers[3:], wrong[3:])
    each = [forget_quality(answers[i : i + 1], wrong[i : i + 1], answers[3:], wrong[3:]).value for i in range(3)]
    np.testing.assert_allclose(one.per_run, each)
