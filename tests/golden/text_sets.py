"""Golden values of language models: TOFU's program and tables, rouge-score and open-unlearning."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lethe.methods.text.common import n_tokens, of_tokens
from lethe.metrics.text.answers import (
    Mean,
    answer_probabilities,
    closer_to_one,
    exact_memorization_shares,
    extraction_strengths,
    option_probabilities,
    right_share,
    truth_preferred,
    truth_ratios,
)
from lethe.metrics.text.mia_text import attack_auc, min_k_scores, privacy_leakage_from_auc
from lethe.metrics.text.rouge import rouge_l_recalls
from lethe.metrics.text.tofu import harmonic_mean, ks_p_value, utility_parts
from tests.golden.golden_set import Arrays, GoldenSet

OFFSET = 1e-10  # open-unlearning adds it to every denominator

_TOFU_SETS = {
    "real_authors": "eval_real_author_wo_options",
    "world_facts": "eval_real_world_wo_options",
    "retain": "eval_log",
    "forget": "eval_log_forget",
}
_TOFU_ARRAYS = {
    "answer_loss": "avg_gt_loss",
    "paraphrased_loss": "avg_paraphrased_loss",
    "wrong_loss": "average_perturb_loss",
    "rouge_recall": "rougeL_recall",
}


def _tofu_arrays(arrays: Arrays, model: str) -> dict[str, Any]:
    return {
        f"{own}_{array}": arrays[f"{model}_{published}_{key}"]
        for own, published in _TOFU_SETS.items()
        for array, key in _TOFU_ARRAYS.items()
    }


def _thirteen(arrays: dict[str, Any], mean: Mean) -> dict[str, float]:
    parts = {
        part: value
        for name in ("real_authors", "world_facts", "retain")
        for part, value in utility_parts(arrays, name, mean=mean).items()
    }
    ratios = truth_ratios(arrays["forget_paraphrased_loss"], arrays["forget_wrong_loss"], mean=mean)
    forget = {
        "forget_rouge": float(arrays["forget_rouge_recall"].mean()),
        "forget_probability": float(answer_probabilities(arrays["forget_answer_loss"]).mean()),
        "forget_truth_ratio": float(closer_to_one(ratios).mean()),
    }
    return {**parts, **forget, "model_utility": harmonic_mean(parts.values())}


_PUBLISHED_SETS = {"Real Authors": "real_authors", "Real World": "world_facts", "Retain": "retain", "Forget": "forget"}
_PUBLISHED_METRICS = {
    "ROUGE": "rouge",
    "Probability": "probability",
    "Prob.": "probability",
    "Truth Ratio": "truth_ratio",
}


def _order(metric_first: bool, metrics: tuple[str, ...]) -> list[str]:
    names = [(part, metric) for part in _PUBLISHED_SETS for metric in metrics]
    return [f"{metric} {part}" if metric_first else f"{part} {metric}" for part, metric in names] + ["Model Utility"]


def _own_name(published: str) -> str:
    if published == "Model Utility":
        return "model_utility"
    part = next(name for name in _PUBLISHED_SETS if name in published)
    return f"{_PUBLISHED_SETS[part]}_{_PUBLISHED_METRICS[published.replace(part, '').strip()]}"


def _tofu_scores(arrays: Arrays) -> Mapping[str, Any]:
    unlearned, retained = _tofu_arrays(arrays, "unlearned"), _tofu_arrays(arrays, "retained")
    paper = _order(metric_first=False, metrics=("ROUGE", "Probability", "Truth Ratio"))
    leaderboard = _order(metric_first=True, metrics=("ROUGE", "Prob.", "Truth Ratio"))
    arithmetic, geometric = _thirteen(unlearned, "arithmetic"), _thirteen(unlearned, "geometric")
    # published as right over wrong; the test only needs the order
    ratios = [
        1 / truth_ratios(side["forget_paraphrased_loss"], side["forget_wrong_loss"]) for side in (unlearned, retained)
    ]
    return {
        "names_paper": np.array(paper),
        "values_paper": np.array([arithmetic[_own_name(name)] for name in paper]),
        "names_leaderboard": np.array(leaderboard),
        "values_leaderboard": np.array([geometric[_own_name(name)] for name in leaderboard]),
        "forget_quality": ks_p_value(*ratios),
    }


def _sequence_losses(arrays: Arrays) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the summed loss and the number of labels of every sequence, as the methods compute them."""
    logits, labels = torch.from_numpy(arrays["logits"]), torch.from_numpy(arrays["labels"])
    return of_tokens(logits, labels).sum(1), n_tokens({"labels": labels})


def _tofu_batch_loss(arrays: Arrays) -> Mapping[str, Any]:
    loss, tokens = _sequence_losses(arrays)
    return {"loss": loss.numpy(), "tokens": tokens.numpy(), "loss_per_token": (loss / tokens).numpy()}


def _tofu_rouge(arrays: Arrays) -> Mapping[str, Any]:
    truths, generated = [str(text) for text in arrays["truth"]], [str(text) for text in arrays["generated"]]
    return {"rougeL_recall": rouge_l_recalls(truths, generated)}


def _tofu_ks_tables(arrays: Arrays) -> Mapping[str, Any]:
    sizes = [(int(n), int(k)) for n, k in zip(arrays["n"], arrays["k"], strict=True)]
    return {
        # the printed p-values, and so these, are of samples (k + 1)/n apart; equations 8 and 9 are taken at k/n
        "scipy_exact": np.array([ks_p_value(np.arange(n), np.arange(n) + k + 0.5) for n, k in sizes])
    }


def _tokens(arrays: Arrays) -> dict[str, Any]:
    """Return what the evaluation keeps of the answers' tokens without the last one, padded to the longest."""
    log_p = torch.log_softmax(torch.from_numpy(arrays["logits"]), dim=-1)
    labels, rows = arrays["labels"], arrays["labels"].shape[0]
    counts = (labels != -100).sum(axis=1)
    length = int(counts.max()) - 1
    correct, token_log_p = np.zeros((rows, length), np.bool_), np.zeros((rows, length), np.float32)
    for row in range(rows):
        places = np.flatnonzero(labels[row] != -100)[:-1]
        before = log_p[row, places - 1]
        correct[row, : len(places)] = before.argmax(dim=-1).numpy() == labels[row, places]
        own = torch.from_numpy(arrays["input_ids"][row, places])
        token_log_p[row, : len(places)] = before.gather(1, own[:, None])[:, 0].numpy()
    return {"correct": correct, "log_p": token_log_p, "counts": counts}


def _open_unlearning(arrays: Arrays) -> Mapping[str, Any]:
    right, wrong = arrays["right_loss"], arrays["wrong_loss"]
    ratios = truth_ratios(right, wrong, offset=OFFSET)
    reference = arrays["reference_truth_ratio"]
    loss, counts = _sequence_losses(arrays)
    tokens = _tokens(arrays)
    return {
        "truth_ratios": ratios,
        "truth_ratio_closer_to_1_better": closer_to_one(ratios, offset=OFFSET).mean(),
        "truth_ratio_true_better": truth_preferred(ratios).mean(),
        "truth_ratio_prob_mean": right_share(right, wrong, offset=OFFSET).mean(),
        "probability_w_options": option_probabilities(right, wrong, offset=OFFSET).mean(),
        "ks_pvalue": ks_p_value(1 / (ratios + OFFSET), 1 / (reference + OFFSET)),
        "privleak_of_auc_0.81_ref_0.47": privacy_leakage_from_auc(0.81, 0.47),
        "hm": harmonic_mean(arrays["nine"]),
        "prob": torch.exp(-loss / counts).double().numpy(),
        "avg_loss": (loss / counts).double().numpy(),
        "min_k_0_4": min_k_scores(tokens["log_p"], tokens["counts"], share=0.4).astype(np.float32),
        "extraction_strength": extraction_strengths(tokens["correct"], tokens["counts"]),
        "exact_memorization": exact_memorization_shares(tokens["correct"], tokens["counts"]),
        "mia_auc": attack_auc(arrays["forget_scores"], arrays["holdout_scores"]),
    }


TEXT_SETS: dict[str, GoldenSet] = {
    "tofu_scores": GoldenSet(_tofu_scores, p_values=frozenset({"forget_quality"}), not_computed=frozenset({"ks"})),
    "tofu_batch_loss": GoldenSet(_tofu_batch_loss, frozenset({"loss", "loss_per_token"})),
    "tofu_rouge": GoldenSet(_tofu_rouge, not_computed=frozenset({"rouge1_recall"})),
    "tofu_ks_tables": GoldenSet(
        _tofu_ks_tables, p_values=frozenset({"scipy_exact"}), not_computed=frozenset({"paper_equation_8_9"})
    ),
    "open_unlearning": GoldenSet(
        _open_unlearning,
        frozenset({"prob", "avg_loss", "min_k_0_4", "exact_memorization"}),
        p_values=frozenset({"ks_pvalue"}),
        not_computed=frozenset({"rel_diff"}),
    ),
}
