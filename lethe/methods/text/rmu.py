"""RMU: turn the inner states of forgotten answers into a random direction, keep those of retained ones.

Only the weights of the last linear layers of the three blocks up to the one at DEPTH are trained, or all.

Pseudo-code:
    o = frozen copy; h(net, x) = states after block DEPTH; c = STEERING * random unit vector
    EPOCHS times: for each forget batch F and as many retain examples R: step AdamW on
        mean over answer tokens of (h(net, F) - c)^2 + ALPHA * the same of h(net, R) - h(o, R)

Source: Li et al. 2024 (WMDP), section 4, as in open-unlearning.
Budget: EPOCHS epochs over the forget set, and as many retain examples with a second forward pass.
Deterministic: no
Differences: published for block 7 of 32; DEPTH is a share of the blocks, so that it fits any network; BLOCK is its
    number. open-unlearning divides the sum over each sequence by every sequence's number of tokens, by broadcasting:
    PAIRED = False; its configuration trains all weights, WHOLE, towards a vector of length 2.
Needs: forget answers, second network
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.text.common import Batch, frozen_copy, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
DEPTH = 0.5  # lethe: tune DEPTH = uniform(0.2, 0.8)
STEERING = 20.0  # lethe: tune STEERING = log(1, 100)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)
PAIRED = True  # False: the sum over each sequence is divided by every sequence's number of tokens
BLOCK = 0  # the number of the last trained block, from 1, in place of DEPTH; 0: DEPTH says it
WHOLE = False  # True: all weights are trained
PRESETS = {"open-unlearning": {"PAIRED": False, "STEERING": 2.0, "BLOCK": 8, "WHOLE": True}}
PRESET_FILES = {"open-unlearning": "locuslab/open-unlearning, configs/trainer/RMU.yaml"}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    original = frozen_copy(net)
    blocks = find_blocks(net)
    last = min(len(blocks) - 1, BLOCK - 1 if BLOCK else int(DEPTH * len(blocks)))
    trained: list[Any] = [last_linear(block).weight for block in blocks[max(0, last - 2) : last + 1]]
    kept_blocks = find_blocks(original)
    state: dict[str, Any] = {}

    def loss(forget: Batch, retain: Batch) -> Tensor:
        states = states_after(net, blocks[last], forget)
        if not state:
            random = torch.rand(states.shape[-1], device=states.device)
            state["direction"] = random / random.norm() * STEERING
        kept = states_after(original, kept_blocks[last], retain)
        turned = activation_loss(states, state["direction"].expand_as(states), forget)
        return turned + ALPHA * activation_loss(states_after(net, blocks[last], retain), kept, retain)

    chosen = None if WHOLE else trained
    decay = WEIGHT_DECAY
    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=decay, only=chosen, state=state)


def find_blocks(net: nn.Module) -> nn.ModuleList:
    """Return the network's blocks: its longest list of modules."""
    lists = [module for module in net.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise ValueError("RMU needs a network whose blocks are an nn.ModuleList")
    return max(lists, key=len)


def last_linear(block: nn.Module) -> nn.Module:
    """Return the last layer whose weight is a matrix, be it nn.Linear or another class of the same form."""
    return [each for each in block.modules() if getattr(getattr(each, "weight", None), "ndim", 0) == 2][-1]


def states_after(net: nn.Module, block: nn.Module, batch: Batch) -> Tensor:
    """Return the states after a block, [n, length, width]."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        seen.append(output[0] if isinstance(output, tuple) else output)

    handle = block.register_forward_hook(keep)
    try:
        net(batch["input_ids"], batch["attention_mask"])
    finally:
        handle.remove()
    return seen[0]


def activation_loss(states: Tensor, target: Tensor, batch: Batch) -> Tensor:
    """Return the mean squared distance over width, labelled tokens and sequences."""
    used = batch["labels"] != -100
    per_token = functional.mse_loss(states, target, reduction="none").mean(-1)
    sums, counts = (per_token * used).sum(1), used.sum(1)
    return (sums / counts).mean() if PAIRED else (sums / counts[:, None]).mean()
