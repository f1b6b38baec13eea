"""How well an attack on softmax vectors tells two sets of examples apart."""

from dataclasses import replace

from lethe.metrics.attacks.membership_features import (
    FORGET_RETAIN_ATTACK,
    FORGET_TEST_ATTACK,
    TEST_RETAIN_ATTACK,
    TRAIN_TEST_ATTACK,
    SoftmaxSplits,
)
from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.run_means import mean_of_runs

MIA_FORGET_RETAIN = Metric(
    id="mia_forget_retain",
    title="Softmax attack, forget against retain",
    function=mean_of_runs,
    needs=both_sides(FORGET_RETAIN_ATTACK, retrained_optional=True),
    unit="%",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=SoftmaxSplits,
    resampling=Resampling.RUNS,
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
