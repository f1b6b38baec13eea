import numpy as np
import pytest
from sklearn.svm import SVC

from lethe.metrics.attacks.svc_efficacy import FEATURES, efficacies, shadow_part, svc_member_share
from lethe.metrics.core.softmax import softmax
from lethe.metrics.membership.mia import logistic_shares, svc_shares

SETTINGS = {"n_models": 2, "shadow_rows": 60, "seed": 0}
LABELS = np.arange(30) % 5


def probabilities(seed: int, *, pull: float = 0.0, n_examples: int = 30) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 1, (3, n_examples, 5))
    logits[:, np.arange(n_examples), np.arange(n_examples) % 5] += pull
    return softmax(logits)


def test_share_equals_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    members, others, targets = rng.normal(0, 1, 80), rng.normal(1, 1, 70), rng.normal(0.5, 1, 40)
    reference = SVC(C=3, gamma="auto").fit(np.append(members, others)[:, None], np.repeat([1, 0], [80, 70]))
    assert svc_member_share(members, others, targets) == reference.predict(targets[:, None]).mean()


@pytest.mark.parametrize("attack", [svc_shares, logistic_shares])
def test_forget_examples_like_the_retain_set_are_called_members(attack):
    retain, test = probabilities(1, pull=9.0), probabilities(2)
    assert attack(probabilities(3, pull=9.0), test, retain, **SETTINGS).tolist() == pytest.approx([1.0, 1.0], abs=0.1)
    assert attack(probabilities(4), test, retain, **SETTINGS).max() < 0.3


@pytest.mark.parametrize("feature", [name for name in FEATURES if name != "m_entropy_published"])
def test_efficacy_is_low_for_members_and_high_for_others(feature):
    sets = probabilities(2), probabilities(1, pull=9.0), LABELS, LABELS, LABELS
    found = [
        efficacies(forget, *sets, feature=feature, **SETTINGS).mean()
        for forget in (probabilities(3, pull=9.0), probabilities(4))
    ]
    assert found[0] < 0.2 < 0.5 < found[1]


@pytest.mark.parametrize("feature", FEATURES)
def test_order_of_shadow_examples_does_not_matter(feature):
    order = np.random.default_rng(1).permutation(30)
    forget, test, retain = probabilities(5), probabilities(6), probabilities(7, pull=2.0)
    plain = efficacies(forget, test, retain, LABELS, LABELS, LABELS, feature=feature, **SETTINGS)
    mixed = efficacies(
        forget, test[:, order], retain[:, order], LABELS, LABELS[order], LABELS[order], feature=feature, **SETTINGS
    )
    assert mixed.tolist() == plain.tolist()


def test_shadow_part_is_drawn_from_all_rows():
    rows = np.arange(100.0)
    part = shadow_part(rows[::-1], 10, seed=1)
    assert part.shape == (10, 1)
    assert set(part[:, 0]) <= set(rows)
    assert part.max() > 50 > part.min()
