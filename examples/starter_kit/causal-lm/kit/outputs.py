"""What a score is computed from, of one language model."""

import numpy as np
import torch
from kit.answer_loaders import pad
from torch.nn import functional

MIN_COMPLEMENT = np.finfo(np.float64).epsneg  # 1 - p of an answer that is certain


def load_outputs(net, data):
    """Return log(p / (1 - p)) of the forgotten answers' probability per token, and the token accuracies."""
    net = net.eval()
    with torch.inference_mode():
        losses = np.array([answer_loss(net, data.forget, row) for row in range(len(data.forget))])
    confidences = -losses - np.log(np.maximum(-np.expm1(-losses), MIN_COMPLEMENT))
    return confidences, data.retain.accuracy(net), data.validation.accuracy(net)


def answer_loss(net, dataset, row):
    """Return the mean cross-entropy of the tokens of one answer."""
    batch = pad([dataset.answers[row]], padding_id=dataset.padding_id)
    logits = net(batch["input_ids"], batch["attention_mask"])[:, :-1].transpose(1, 2)
    return functional.cross_entropy(logits, batch["labels"][:, 1:]).double().item()
