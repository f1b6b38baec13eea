"""How well an attack on one number per example tells forget from test examples."""

from dataclasses import replace

from lethe.metrics.attacks.membership_features import CONFIDENCE_ATTACK, ENTROPY_ATTACK, LOSS_ATTACK, ShuffleSplits
from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.run_means import gap_of_runs, mean_of_runs

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
