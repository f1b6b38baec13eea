"""MSG (Kookmin, 2nd place): draw again the convolution weights on which retain and forget loss hardly differ.

The gradient of the retain loss minus that of the forget loss is accumulated once. In each convolution the PX share of
weights with the smallest such gradient is drawn again. Finetuning on the retain set follows, in which the other
convolution weights move ten times slower.

Pseudo-code:
    backward of ce on |S| random retain examples and of -ce on the forget set, added up
    for each convolution: m = the PX share of weights of smallest |grad|; w[m] = Kaiming normal (fan out)
    EPOCHS epochs on the retain set, learning rate up and down linearly; convolution gradients * (1 where m, else 0.1)

Source: Triantafillou et al. 2024, appendix A.4 "Kookmin"; Cadet et al. 2024, MSG.
Budget: EPOCHS + 2 * |S| / |R| epochs over the retain set.
Measured: the time of 5.68 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the program computes the gradients in the mode that the network is handed over in; MODE is that mode here.
    Networks without convolutions: the linear layers take their place.
Needs: forget images, forget labels
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Subset

from lethe.methods.common import batches, train, weight_layers

PX = 0.3  # lethe: tune PX = uniform(0.05, 0.95)
LR = 0.001  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 6)
MODE = "eval"  # of the network for the gradients  # lethe: tune MODE = choice("eval", "train")
SLOW = 0.1  # factor on the gradient of convolution weights that were kept
SALIENCY_BATCH = 64  # of the retain examples whose gradients are taken
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    erase(net, retain_loader, forget_loader, val_loader, state)
    repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    finish(net, state)
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    net.train(MODE == "train")
    net.zero_grad()
    chosen = torch.randperm(len(retain_loader.dataset))[: len(forget_loader.dataset)].tolist()
    part = DataLoader(Subset(retain_loader.dataset, chosen), batch_size=SALIENCY_BATCH, shuffle=True)
    accumulate_gradient(net, part, sign=1)
    accumulate_gradient(net, forget_loader, sign=-1)
    state["hooks"] = []
    for weight in target_weights(net):
        mask = draw_again(weight)
        scale = torch.where(mask, 1.0, SLOW).float()
        state["hooks"].append(weight.register_hook(scale.mul))
    net.zero_grad()


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    train(net, retain, optimizer, [lr * linear_factor(epoch, epochs) for epoch in range(epochs)])


def finish(net: nn.Module, state: dict[str, Any]) -> None:
    for hook in state["hooks"]:
        hook.remove()


def accumulate_gradient(net: nn.Module, loader: Any, *, sign: int) -> None:
    """Add to each weight's gradient that of sign * cross-entropy over each batch of the loader."""
    for images, labels in batches(loader, net):
        (sign * functional.cross_entropy(net(images), labels)).backward()


def target_weights(net: nn.Module) -> list[Tensor]:
    """Return the weights of all convolutions, or of the linear layers where there are none."""
    layers = weight_layers(net)
    convolutions = [layer.weight for layer in layers if isinstance(layer, nn.Conv2d)]
    return convolutions or [layer.weight for layer in layers]


@torch.no_grad()
def draw_again(weight: Tensor) -> Tensor:
    """Draw the PX share of weights with the smallest gradient again. Return where they are, in the weight's shape."""
    gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
    mask = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
    mask[gradient.abs().flatten().topk(round(PX * weight.numel()), largest=False).indices] = True
    weight.copy_(torch.where(mask.view_as(weight), fresh_weights(weight), weight))
    return mask.view_as(weight)


def fresh_weights(weight: Tensor) -> Tensor:
    return nn.init.kaiming_normal_(torch.empty_like(weight), mode="fan_out", nonlinearity="relu")


def linear_factor(epoch: int, epochs: int) -> float:
    """Return the share of the learning rate in an epoch: up linearly over the first half, then down towards 0."""
    n_up = (epochs + 1) // 2
    return (epoch + 1) / n_up if epoch < n_up else (epochs - epoch) / (epochs - n_up + 1)
