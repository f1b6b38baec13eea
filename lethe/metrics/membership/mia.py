"""How well attacks on losses, entropies, softmax vectors and saliency maps tell forget from other examples."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from lethe.metrics.attacks.classifier_attacks import (
    EFFICACY,
    ClasswiseParameters,
    EfficacyParameters,
    ShadowParameters,
    classwise_accuracies,
    entropy,
    logistic_member_share,
    shadow_part,
    svc_member_share,
)
from lethe.metrics.attacks.membership_features import (
    CONFIDENCE_ATTACK,
    ENTROPY_ATTACK,
    FORGET_RETAIN_ATTACK,
    FORGET_TEST_ATTACK,
    LOSS_ATTACK,
    TEST_RETAIN_ATTACK,
    TRAIN_TEST_ATTACK,
    ShuffleSplits,
    SoftmaxSplits,
)
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.compiled import in_threads
from lethe.metrics.core.registry import Direction, Feature, Metric, Resampling, both_sides
from lethe.metrics.core.result import gap_of_runs, mean_of_runs

MIA_LOSS = Metric(
    id="mia_loss",
    title="Loss attack",
    function=mean_of_runs,
    needs=both_sides(LOSS_ATTACK, retrained_optional=True),
    unit="accuracy",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=ShuffleSplits,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Triantafillou et al. 2024 (2406.09073), appendix A.11, figure 17",
    formula=(
        "mean over runs and splits of the held-out accuracy of a logistic regression that tells the cross-entropy of "
        "forget examples from that of test examples"
    ),
    paper_and_code=(
        "The paper states neither split nor regulariser. Here: the larger set cut to the smaller by a seeded draw, 10 "
        "stratified shuffle splits, 10 % held out, L2 penalty with C = 1, as the code of deepunlearn and MUFAC has it. "
        "Equal losses everywhere give 0.5."
    ),
)

MIA_CONFIDENCE = replace(
    MIA_LOSS,
    id="mia_confidence",
    title="Confidence attack",
    needs=both_sides(CONFIDENCE_ATTACK, retrained_optional=True),
    formula="as mia_loss, on the probability of the true class; only the regulariser tells the two apart",
)

MIA_ENTROPY = replace(
    MIA_LOSS,
    id="mia_entropy",
    title="Entropy attack",
    needs=both_sides(ENTROPY_ATTACK, retrained_optional=True),
    formula="as mia_loss, on the entropy of the softmax vector in nats",
)

MIA_GAP = replace(
    MIA_LOSS,
    id="mia_gap",
    title="MIA gap",
    function=gap_of_runs,
    direction=Direction.LOWER,
    ideal=0.0,
    resampling=Resampling.MODELS,
    formula="| mean_i MIA(u_i) - mean_i MIA(r_i) | with MIA = mia_loss per model",
)


CLASSWISE_ATTACK = Feature(
    "classwise_accuracy",
    classwise_accuracies,
    ("forget_probabilities", "test_probabilities"),
    ("forget_labels", "test_labels"),
    ("feature", "repetitions", "exchanged", "seed"),
)

MIA_CONFIDENCE_CLASSWISE = replace(
    MIA_LOSS,
    id="mia_confidence_classwise",
    title="Class-wise membership attack",
    needs=both_sides(CLASSWISE_ATTACK, retrained_optional=True),
    defaults=ClasswiseParameters,
    source="Goel et al. 2022 (2201.06640), appendix B.3.2; Song and Mittal 2021 (2003.10595)",
    formula="(share of forget targets >= threshold of their class + share of test targets below it) / 2",
    paper_and_code="The program draws each subsample from the one before it, keeps the halves of the smaller set, "
    "and exchanges members and non-members for IID confusion; here every repetition draws from all examples.",
)

MIA_SVC = replace(
    MIA_LOSS,
    id="mia_svc",
    title="MIA efficacy, support vectors",
    needs=both_sides(EFFICACY, retrained_optional=True),
    unit="share of the forget set",
    defaults=EfficacyParameters,
    source="Fan et al. 2024 (2310.12508), program, evaluation/SVC_MIA.py",
    formula="1 - mean_x [SVC(feature(x)) = member], trained on retain (1) and test (0) examples",
    paper_and_code="The program's modified entropy exchanges p and 1 - p in the columns of all labels of the batch and "
    "takes log p for log(1 - p). `m_entropy` is that of Song and Mittal; the program's is `m_entropy_published`.",
)

MIA_FORGET_RETAIN = replace(
    MIA_LOSS,
    id="mia_forget_retain",
    title="Softmax attack, forget against retain",
    needs=both_sides(FORGET_RETAIN_ATTACK, retrained_optional=True),
    unit="%",
    defaults=SoftmaxSplits,
    bounds=(0.0, 100.0),
    source="the MIAU paper, section 5, attack training protocol",
    formula=(
        "mean over runs of 100 x the held-out accuracy of a logistic regression on softmax vectors, sets cut to equal "
        "size, 80 % for training"
    ),
    paper_and_code=(
        "No code is public. The paper lists forget against retain twice and means test against retain by the second; "
        "it gives no hyper-parameters: L2 penalty with C = 1 here, solved exactly. One split per run, seeded by the "
        "run, the same for the unlearned, retrained and original model of the run. The order of the examples is part "
        "of the seed."
    ),
)

MIA_FORGET_TEST = replace(
    MIA_FORGET_RETAIN,
    id="mia_forget_test",
    title="Softmax attack, forget against test",
    needs=both_sides(FORGET_TEST_ATTACK, retrained_optional=True),
)

MIA_TEST_RETAIN = replace(
    MIA_FORGET_RETAIN,
    id="mia_test_retain",
    title="Softmax attack, test against retain",
    needs=both_sides(TEST_RETAIN_ATTACK, retrained_optional=True),
)

MIA_TRAIN_TEST = replace(
    MIA_FORGET_RETAIN,
    id="mia_train_test",
    title="Softmax attack, all training data against test (control)",
    needs=both_sides(TRAIN_TEST_ATTACK, retrained_optional=True),
)


def entropy_shares(
    forget: Float64,
    test: Float64,
    retain: Float64,
    *,
    classifier: Callable[..., float],
    n_models: int,
    shadow_rows: int,
    seed: int,
) -> Float64:
    """Return the share of forget examples called members, by model, shape (at most n_models,), in [0, 1].

    forget, test, retain: probabilities, shape (n_models, n_examples, n_classes) each; their entropies are looked at.
    classifier: `svc_member_share` or `logistic_member_share`.
    """
    half = max(1, shadow_rows // 2)

    def share(model: int) -> float:
        members, others = (shadow_part(entropy(rows[model]), half, seed=seed) for rows in (retain, test))
        return classifier(members, others, entropy(forget[model]))

    return np.array(in_threads(share, range(min(n_models, len(forget)))))


def _entropy_attack(name: str, classifier: Callable[..., float]) -> Feature:
    arrays = ("forget_probabilities", "test_probabilities", "retain_probabilities")
    function = partial(entropy_shares, classifier=classifier)
    return Feature(name, function, arrays, parameters=("n_models", "shadow_rows", "seed"))


MIA_SVC_ENTROPY = replace(
    MIA_SVC,
    id="mia_svc_entropy",
    title="Entropy attack, support vectors",
    needs=both_sides(_entropy_attack("svc_entropy_share", svc_member_share), retrained_optional=True),
    defaults=ShadowParameters,
    source="Golatkar et al. 2020 (2003.02960), program",
    formula="mean_x [SVC(H(p(x))) = member], trained on the entropies of retain (1) and test (0) examples",
    paper_and_code="",
)

SSD_LR = replace(
    MIA_SVC_ENTROPY,
    id="ssd_lr",
    title="Entropy attack, logistic regression",
    needs=both_sides(_entropy_attack("logistic_entropy_share", logistic_member_share), retrained_optional=True),
    source="Foster et al. 2024 (2308.07707), program, metrics.py",
    formula="mean_x [LR(H(p(x))) = member], balanced class weights, trained on retain (1) and test (0) examples",
    paper_and_code="The program asks for multi_class='multinomial', which scikit-learn 1.8 no longer has; for two "
    "classes the default is used.",
)
