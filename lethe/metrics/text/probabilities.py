"""Probability of an answer, per token.

Source: Maini et al. 2024 (TOFU), section 2.2.1 and table 2. The text names P(a|q) and the table P(a|q)^(1/|a|); the
program uses the latter, which is exp(-mean loss of the answer's tokens), and so does this.
"""

import numpy as np
import numpy.typing as npt

from lethe.metrics.text.losses import Float64, some_examples, with_options

_LARGEST_EXPONENT = 700.0  # exp() of more overflows


def answer_probabilities(answer_loss: npt.ArrayLike) -> Float64:
    """Return exp(-loss) of every answer. answer_loss: shape (..., n), nats per token."""
    return np.exp(-some_examples(answer_loss, "answer_loss"))


def option_probabilities(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike, *, offset: float = 0.0) -> Float64:
    """Return the right answer's share of the probability of all options, shape (..., n).

    answer_loss: shape (..., n). wrong_loss: shape (..., n, k). offset: added to the denominator; 1e-10 in
    open-unlearning, 0 in TOFU.
    """
    right, wrong = with_options(answer_loss, wrong_loss)
    p, wrong_p = np.exp(-right), np.exp(-wrong)
    if offset:
        return np.asarray(p / (p + wrong_p.sum(axis=-1) + offset), np.float64)
    total = np.concatenate([p[..., None], wrong_p], axis=-1).sum(axis=-1)
    relative_to_right = 1 / (1 + np.exp(np.minimum(right[..., None] - wrong, _LARGEST_EXPONENT)).sum(axis=-1))
    return np.where(total > 0, p / np.where(total > 0, total, 1), relative_to_right)


def logit_scaled(answer_loss: npt.ArrayLike) -> Float64:
    """Return h = log(p / (1 - p)) of the answer probability p = exp(-loss), shape as given.

    This is the statistic that the epsilon score compares between models, as for the true class of an image. A
    probability of exactly 1 is taken as the largest number below 1, so that h stays finite.
    """
    loss = some_examples(answer_loss, "answer_loss")
    return np.asarray(-loss - np.log(np.maximum(-np.expm1(-loss), np.finfo(np.float64).epsneg)), np.float64)
