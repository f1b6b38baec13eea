"""Golden values of Deep Unlearn, LiRA, interclass confusion and the membership attacks of Golatkar, SalUn and SSD."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.accuracy.confusion import confused_counts
from lethe.metrics.accuracy.gaps import symmetric_percentage_error
from lethe.metrics.attacks.classifier_attacks import (
    FEATURES,
    Scored,
    attack_accuracy,
    confidence,
    entropy,
    logistic_member_share,
    modified_entropy,
    modified_entropy_published,
    svc_member_share,
)
from lethe.metrics.attacks.likelihood_attack import roc_curve
from lethe.metrics.benchmark.rankings import ranking_groups
from lethe.metrics.core.derived_arrays import softmax
from lethe.metrics.forgetting.probes import weight_distance
from lethe.metrics.membership.likelihood_ratios import (
    membership_probabilities,
    offline_scores,
    online_scores,
    threshold_scores,
)
from lethe.metrics.membership.umia import distance_from_certainty, held_out_accuracies, shuffled
from lethe.metrics.outputs.predictions import activation_l1
from tests.golden.golden_set import Arrays, GoldenSet

Values = Mapping[str, Any]
Array = npt.NDArray[Any]


def _umia(arrays: Arrays) -> Values:
    forget, test = shuffled(arrays["forget_losses"], arrays["test_losses"], seed=int(arrays["numpy_seed"]))
    (scores,) = held_out_accuracies(forget[None], test[None], n_splits=len(arrays["train_index"]))
    return {"scores": scores, "umia": scores.mean(), "indiscernibility": distance_from_certainty(scores.mean())}


def _scalars(arrays: Arrays) -> Values:
    new, reference = arrays["new"], arrays["reference"]
    return {
        "indiscernibility": distance_from_certainty(arrays["mia"]),
        "retention": new / reference,
        "rte": reference / new,
        "sape": symmetric_percentage_error(reference, new),
    }


def _weight_distance(arrays: Arrays) -> Values:
    found = weight_distance({"all": arrays["a"]}, {"all": arrays["b"]})
    return {
        "l2": found.value,
        "l2_over_norm_a": found.table["over_norm"],
        "norm_a": found.table["norm"],
        "l2_of_unit_weights": found.table["of_unit_weights"],
    }


def _ulira(arrays: Arrays) -> Values:
    n_examples = arrays["targets"].size
    correct = arrays["probabilities"].argmax(axis=3) == arrays["targets"][:, None, None]
    rows = membership_probabilities(correct.reshape(n_examples, -1), arrays["state"].reshape(n_examples, -1))
    padded = np.full((n_examples, max(row.size for row in rows)), -1.0)
    for place, row in zip(padded, rows, strict=True):
        place[: row.size] = row
    return {"membership": padded}


def _ranking(arrays: Arrays) -> Values:
    retdev = ranking_groups(arrays["retdev"], higher_is_better=False)
    indiscernibility = ranking_groups(arrays["indiscernibility"], higher_is_better=True)
    return {"retdev_counts": retdev.counts, "indisc_counts": indiscernibility.counts}


def _lira(arrays: Arrays) -> Values:
    n_targets = int(arrays["n_test_models"])
    shadows, keep = arrays["scores"][:-n_targets], arrays["keep"][:-n_targets]
    targets, answers = arrays["scores"][-n_targets:], arrays["keep"][-n_targets:]
    attacks = {
        "online": online_scores(shadows, keep, targets),
        "online_fixed": online_scores(shadows, keep, targets, fixed_variance=True),
        "offline": offline_scores(shadows, keep, targets),
        "offline_fixed": offline_scores(shadows, keep, targets, fixed_variance=True),
        "threshold": threshold_scores(targets),
    }
    values: dict[str, Any] = {}
    for name, scores in attacks.items():
        curve = roc_curve(scores.ravel(), answers.ravel())
        values |= {f"{name}_prediction": -scores.ravel(), f"{name}_auc": curve.area}
        values |= {f"{name}_accuracy": curve.accuracy}
        values |= {f"{name}_tpr_at_fpr_0.001": curve.true_positive_rate_below(0.001)}
    return values


def _song(arrays: Arrays) -> Values:
    sides = ("shadow_forget", "shadow_test", "target_forget", "target_test")
    given = {side: (arrays[f"{side}_probabilities"], arrays[f"{side}_labels"]) for side in sides}
    n_classes = given["shadow_forget"][0].shape[1]
    features: dict[str, Callable[[Array, Array], Array]] = {
        "confidence": confidence,
        "entropy": lambda p, _labels: -entropy(p),
        "modified_entropy": lambda p, labels: -modified_entropy(p, labels),
    }
    accuracies = {
        name: np.array(list(attack_accuracy(*(Scored(value(p, y), y) for p, y in given.values()), n_classes=n_classes)))
        for name, value in features.items()
    }
    return {**accuracies, "target_forget_modified_entropy": modified_entropy(*given["target_forget"])}


def _confusion(arrays: Arrays) -> Values:
    counts, a, b = arrays["confusion"], arrays["a"], arrays["b"]
    return {
        "conf_score": confused_counts(counts, arrays["classes"]),
        "conf_score3": confused_counts(counts, arrays["classes3"]),
        "accuracy": np.trace(counts) / counts.sum(),
        "l1_softmax": activation_l1(a[None], b[None]).value,
        # published, and replaced by `disagreement`: class numbers have no distance
        "l1_predicted_class_numbers": np.abs(a.argmax(axis=1) - b.argmax(axis=1)).sum().astype(np.float64),
    }


def _entropies(arrays: Arrays) -> tuple[Array, Array, Array]:
    retain, test, forget = (entropy(softmax(arrays[f"{part}_logits"])) for part in ("retain", "test", "forget"))
    return retain, test, forget


def _golatkar(arrays: Arrays) -> Values:
    retain, test, forget = _entropies(arrays)
    return {"share": svc_member_share(retain, test, forget), "forget_entropy": forget}


def _ssd(arrays: Arrays) -> Values:
    return {"share": logistic_member_share(*_entropies(arrays))}


def _salun(arrays: Arrays) -> Values:
    parts = ("shadow_train", "shadow_test", "target_test")
    # published in float32, in which a forget example at the edge can fall on the other side
    given = [(softmax(arrays[f"{part}_logits"]).astype(np.float32), arrays[f"{part}_labels"]) for part in parts]
    names = ("correctness", "confidence", "entropy", "m_entropy", "prob")
    features = [FEATURES["m_entropy_published" if name == "m_entropy" else name] for name in names]
    return {
        "names": np.array(names),
        "efficacy": np.array([1.0 - svc_member_share(*(value(p, y) for p, y in given)) for value in features]),
        "m_entropy_as_published": modified_entropy_published(*given[2]),
    }


ATTACK_METRIC_SETS: dict[str, GoldenSet] = {
    "du_umia": GoldenSet(_umia),
    "du_scalars": GoldenSet(_scalars),
    "du_weight_distance": GoldenSet(
        _weight_distance, float32=frozenset({"l2", "l2_over_norm_a", "norm_a", "l2_of_unit_weights"})
    ),
    "du_ulira": GoldenSet(_ulira),
    "du_ranking": GoldenSet(_ranking),
    "lira": GoldenSet(_lira),
    "goel_song_mia": GoldenSet(_song),
    "goel_confusion": GoldenSet(_confusion, not_computed=frozenset({"class_removal_of_1", "worst_pair"})),
    "golatkar_svc_mia": GoldenSet(_golatkar, float32=frozenset({"forget_entropy"})),
    "ssd_lr_mia": GoldenSet(_ssd),
    "salun_svc_mia": GoldenSet(_salun, float32=frozenset({"m_entropy_as_published"})),
}
