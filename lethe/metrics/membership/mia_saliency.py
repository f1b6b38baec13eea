"""How well an attack on saliency maps tells two sets of examples apart, and MIAU of three such attacks."""

from dataclasses import replace

from lethe.metrics.attacks.saliency_attack import (
    FORGET_RETAIN_SALIENCY,
    FORGET_TEST_SALIENCY,
    TEST_RETAIN_SALIENCY,
    SaliencySplits,
)
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.registry import Feature, Metric, Need, both_sides
from lethe.metrics.membership import mia_softmax, miau

FEATURES = (FORGET_RETAIN_SALIENCY, FORGET_TEST_SALIENCY, TEST_RETAIN_SALIENCY)
SOURCE = "the MIAU paper, section 5 and table 26; Huang et al. 2024 (2407.17663)"
NOT_STATED = (
    "No code is public, and the paper names XGBoost 3.0 without settings: here scikit-learn's boosting on histograms "
    "with XGBoost's defaults, at least 4 examples in a leaf. Maps are absolute gradients of the predicted class's "
    "output by the input, as in the program of Huang et al., which the paper follows. "
)
DRAWS = (
    "One split per run, seeded by the run, the same for the unlearned, retrained and original model of the run. The "
    "order of the examples is part of the seed."
)


class SaliencyMiauParameters(SaliencySplits, miau.MiauParameters):
    """The settings of the attack and those of MIAU."""


def _attack(name: str, sets: str, feature: Feature) -> Metric:
    return replace(
        mia_softmax.MIA_FORGET_RETAIN,
        id=f"mia_saliency_{name}",
        title=f"Saliency attack, {sets}",
        needs=both_sides(feature, retrained_optional=True),
        defaults=SaliencySplits,
        source=SOURCE,
        formula=(
            "mean over runs of 100 x the held-out accuracy of gradient boosting on | d z_argmax / d x |, sets cut to "
            "equal size, 80 % for training"
        ),
        paper_and_code=NOT_STATED + DRAWS,
    )


MIA_SALIENCY_FORGET_RETAIN = _attack("forget_retain", "forget against retain", FORGET_RETAIN_SALIENCY)
MIA_SALIENCY_FORGET_TEST = _attack("forget_test", "forget against test", FORGET_TEST_SALIENCY)
MIA_SALIENCY_TEST_RETAIN = _attack("test_retain", "test against retain", TEST_RETAIN_SALIENCY)

MIAU_SALIENCY = replace(
    miau.MIAU,
    id="miau_saliency",
    title="MIAU of saliency attacks",
    needs={
        f"{side}_{task}": Need(feature, side)
        for side in (Side.UNLEARNED, Side.RETRAINED, Side.ORIGINAL)
        for task, feature in zip(miau.TASKS, FEATURES, strict=True)
    },
    defaults=SaliencyMiauParameters,
    source=f"{SOURCE}; equations 1 to 3",
    paper_and_code=NOT_STATED + miau.MIAU.paper_and_code.removeprefix("No code is public. "),
)
