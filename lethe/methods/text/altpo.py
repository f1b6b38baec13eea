"""AltPO: prefer other plausible answers, which the network gives itself, to the forgotten ones.

An alternative begins as the true answer, leaves it at a token drawn at random, and goes on in the network's own words.

Pseudo-code:
    o = frozen copy; gain(x) = nll(o, x) - nll(net, x)
    EPOCHS times: for each forget batch F and as many retain examples R:
        A = the answers of F up to a token drawn at random, another token there, the rest drawn from o
        step AdamW on -2 / BETA * mean log sigmoid(BETA * (gain(A) - gain(F))) + ALPHA * loss(R)

Source: Mekala et al. 2025 (AltPO), section 3; the loss as in open-unlearning.
Budget: EPOCHS epochs over the forget set with a second forward pass and one more for every token of the longest answer,
    and as many retain examples.
Deterministic: no
Differences: the published program asks an instructed network for another answer, in words; here the network is sampled,
    without a tokenizer. There five alternatives to a question are drawn beforehand, here one whenever a question
    comes. An alternative is no longer than the true answer.
Needs: forget answers, second network
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.text.common import Batch, compute_logits, frozen_copy, mean_loss, sequence_nll, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
BETA = 0.1  # lethe: tune BETA = log(0.01, 1)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)
TEMPERATURE = 1.0  # lethe: tune TEMPERATURE = uniform(0.5, 1.5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    original = frozen_copy(net)

    def loss(forget: Batch, retain: Batch) -> Tensor:
        pair = (alternatives(original, forget), forget)
        gains = [sequence_nll(original, part) - sequence_nll(net, part) for part in pair]
        return altpo_loss(*gains) + ALPHA * mean_loss(net, retain)

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)


def altpo_loss(preferred_gain: Tensor, forgotten_gain: Tensor) -> Tensor:
    """Return the loss from the gains in log probability over the original network, [n] each."""
    return -2 / BETA * functional.logsigmoid(BETA * (preferred_gain - forgotten_gain)).mean()


@torch.no_grad()
def alternatives(net: nn.Module, batch: Batch) -> Batch:
    """Return the questions with answers that the network draws; the last token of an answer, its end, is kept.

    Every row has its answer in one piece. One that ends early is padded with what stood there, masked.
    """
    ids, mask, labels = (batch[name].clone() for name in ("input_ids", "attention_mask", "labels"))
    answer = labels != -100
    count, start = answer.sum(1), answer.int().argmax(1)
    last = start + count - 1
    branch = start + (torch.rand(len(ids), device=ids.device) * (count - 1)).long()
    end = ids.gather(1, last[:, None])
    ended = torch.zeros_like(last, dtype=torch.bool)
    for place in range(int(branch.min()), int(last.max()) + 1):
        labels[ended, place], mask[ended, place] = -100, 0
        scores = compute_logits(net, {"input_ids": ids[:, :place], "attention_mask": mask[:, :place]})[:, -1]
        leaves = (branch == place)[:, None]
        refused = torch.zeros_like(scores, dtype=torch.bool).scatter(
            1, torch.cat([end, ids[:, place, None]], 1), leaves.expand(-1, 2)
        )
        scores = scores.masked_fill(refused, -torch.inf) / TEMPERATURE
        drawn = torch.multinomial(scores.softmax(-1), 1)[:, 0]
        free = ((place < last) | leaves[:, 0]) & (place >= branch) & ~ended
        ids[:, place] = torch.where(free, drawn, ids[:, place])
        labels[:, place] = torch.where(free, drawn, labels[:, place])
        ended |= free & (drawn == end[:, 0])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
