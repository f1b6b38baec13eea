"""RMU: turn the inner states of forgotten answers into a random direction, keep those of retained ones.

Only the last linear layers of the three blocks up to the one at DEPTH are trained.

Pseudo-code:
    o = frozen copy; h(net, x) = states after block DEPTH; c = STEERING * random unit vector
    EPOCHS times: for each forget batch F and as many retain examples R: step AdamW on
        mean over answer tokens of (h(net, F) - c)^2 + ALPHA * the same of h(net, R) - h(o, R)

Source: Li et al. 2024 (WMDP), section 4, as in open-unlearning.
Budget: EPOCHS epochs over the forget set, and as many retain examples with a second forward pass.
Deterministic: no
Differences: published for block 7 of 32; DEPTH is a share of the blocks, so that it fits any network.
Needs: forget answers, second network
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
DEPTH = 0.5  # lethe: tune DEPTH = uniform(0.2, 0.8)
STEERING = 20.0  # lethe: tune STEERING = log(1, 100)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    original = frozen_copy(net)
    net.train()
    blocks = find_blocks(net)
    last = min(len(blocks) - 1, int(DEPTH * len(blocks)))
    train_only(net, [last_linear(block) for block in blocks[max(0, last - 2) : last + 1]])
    kept_blocks = find_blocks(original)
    direction: list[Tensor] = []

    def loss(forget: Batch, retain: Batch) -> Tensor:
        states = states_after(net, blocks[last], forget)
        if not direction:
            random = torch.rand(states.shape[-1], device=states.device)
            direction.append(random / random.norm() * STEERING)
        kept = states_after(original, kept_blocks[last], retain)
        turned = activation_loss(states, direction[0].expand_as(states), forget)
        return turned + ALPHA * activation_loss(states_after(net, blocks[last], retain), kept, retain)

    train(net, loss, forget_loader, retain_loader)
    net.requires_grad_(True)
    net.eval()


def find_blocks(net: nn.Module) -> nn.ModuleList:
    """Return the network's blocks: its longest list of modules."""
    lists = [module for module in net.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise ValueError("RMU needs a network whose blocks are an nn.ModuleList")
    return max(lists, key=len)


def last_linear(block: nn.Module) -> nn.Module:
    return [module for module in block.modules() if isinstance(module, nn.Linear)][-1]


def train_only(net: nn.Module, layers: list[nn.Module]) -> None:
    net.requires_grad_(False)
    for layer in layers:
        layer.requires_grad_(True)


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
    return ((per_token * used).sum(1) / used.sum(1)).mean()


def frozen_copy(net: nn.Module) -> nn.Module:
    """Return the network as it is, for its outputs only."""
    return copy.deepcopy(net).eval().requires_grad_(False)


def train(net: nn.Module, loss_of: Callable[[Batch, Batch], Tensor], forget_loader: Any, retain_loader: Any) -> None:
    """Take EPOCHS passes over the forget set, each batch with as many retain examples, by AdamW.

    The learning rate rises over the first epoch and then falls linearly to 0; gradients are clipped to norm 1.
    """
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=WEIGHT_DECAY)
    retained, step, n_steps = endless(retain_loader), 0, EPOCHS * len(forget_loader)
    for _ in range(EPOCHS):
        for batch in forget_loader:
            optimizer.param_groups[0]["lr"] = LR * schedule(step, len(forget_loader), n_steps)
            forget = on_device(batch, net)
            retain = first_rows(on_device(next(retained), net), len(batch["labels"]))
            optimizer.zero_grad()
            loss_of(forget, retain).backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            step += 1


def schedule(step: int, warm_up: int, n_steps: int) -> float:
    return min((step + 1) / warm_up, (n_steps - step) / max(1, n_steps - warm_up))


def endless(loader: Any) -> Iterator[Batch]:
    while True:
        yield from loader


def first_rows(batch: Batch, n: int) -> Batch:
    return {name: tensor[:n] for name, tensor in batch.items()}


def on_device(batch: Batch, net: nn.Module) -> Batch:
    device = next(net.parameters()).device
    return {name: tensor.to(device) for name, tensor in batch.items()}


def compute_logits(net: nn.Module, batch: Batch) -> Tensor:
    """Return logits [n, length, vocabulary] of a network that returns them, or an object that holds them."""
    output = net(batch["input_ids"], batch["attention_mask"])
    logits: Tensor = getattr(output, "logits", output)
    return logits
