"""Methods on a network with residual blocks and BatchNorm in downsampling, against plain transcriptions.

The common frame has neither. The programs are written out from meghdadk/SCRUB at 98ffb11, shash42/Evaluating-Inexact-
Unlearning at a45fe02, xcadet/deepunlearn at 6830ff6 and OPTML-Group/Unlearn-Saliency at a6e89fd; nothing is shuffled.
"""

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from lethe.methods.rendering import render
from tests.golden.trajectories.frame import Examples
from tests.golden.trajectories.run import as_stored, in_stored_order


class Block(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(images)))))
        return functional.relu(hidden + (images if self.downsample is None else self.downsample(images)))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.layer1 = nn.Sequential(Block(6, 6, 1))
        self.layer2 = nn.Sequential(Block(6, 10, 2), Block(10, 10, 1))
        self.fc = nn.Linear(10, 4)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.layer2(self.layer1(functional.relu(self.bn1(self.conv1(images)))))
        return self.fc(hidden.mean((2, 3)))


def examples(n: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n, 3, 8, 8, generator=generator, dtype=torch.float64)
    return Examples(images, torch.randint(4, (n,), generator=generator))


def loaders() -> tuple[DataLoader[Any], ...]:
    return tuple(
        DataLoader(examples(n, seed), batch_size=size) for seed, (n, size) in enumerate(((40, 10), (12, 4), (12, 4)))
    )


def pairs(loader: Any) -> list[tuple[Tensor, Tensor]]:
    return [(sample["image"], sample["label"]) for sample in loader]


def scrub(net: ResNet, retain: Any, forget: Any, val: Any) -> None:
    teacher = copy.deepcopy(net).eval()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, weight_decay=0.1)

    def kd(student: Tensor, target: Tensor) -> Tensor:
        log_own, own = functional.log_softmax(student / 2, dim=1), functional.softmax(target / 2, dim=1)
        return functional.kl_div(log_own, own, reduction="sum") * (2**2) / student.shape[0]

    for epoch in range(1, 11):
        steps = np.sum(epoch > np.asarray([5, 8, 9]))
        for group in optimizer.param_groups:
            group["lr"] = 5e-4 * 0.1**steps
        passes = [(forget, True)] * (epoch <= 3) + [(retain, False)]
        for loader, raises in passes:
            net.train()
            for images, labels in pairs(loader):
                logits = net(images)
                with torch.no_grad():
                    target = teacher(images)
                distance = kd(logits, target)
                loss = -distance if raises else functional.cross_entropy(logits, labels) + 0.5 * distance
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def last_layers(net: ResNet, retain: Any, *, draws: bool) -> None:
    for parameter in net.parameters():
        parameter.requires_grad = False
    found: list[nn.Module] = []

    def collect(module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.Linear):
            found.append(module)
        for child in module.children():
            collect(child)

    collect(net)
    done = 0
    for module in reversed(found):
        if isinstance(module, nn.Conv2d | nn.Linear):
            if draws:
                nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            done += 1
        for parameter in module.parameters():
            parameter.requires_grad = True
        if done >= 5:
            break
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9, weight_decay=5e-5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=1, T_mult=2, eta_min=0.005)
    for _ in range(4):
        net.train()
        for images, labels in pairs(retain):
            loss = functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimizer.step()
        scheduler.step()


def rni(net: ResNet, retain: Any, forget: Any, val: Any) -> None:
    parameters = dict(net.named_parameters())
    earlier: list[str] = []
    net.fc.reset_parameters()
    for epoch in range(9):
        net.train()
        fine, keys = epoch >= 5, list(parameters)
        if not fine:
            others = [key for key in keys if "bn" not in key]
            picked = others[:9]
            keys = sorted({*picked, *(key for key in keys if "bn" in key)})
            if epoch >= 1:
                for key in sorted(picked[: int(0.7 * 9)]):
                    noise = torch.randn_like(parameters[key].data)
                    if key not in earlier:
                        parameters[key].data = parameters[key].data + noise * 0.04
        for key, parameter in parameters.items():
            parameter.requires_grad = key in keys
        rate = [2e-4, 2e-4, 2e-4, 1e-3][epoch - 5] if fine else 2e-4
        optimizer = torch.optim.SGD(list(parameters.values()), lr=rate, momentum=0.9, weight_decay=5e-4)
        earlier = list({*earlier, *keys})
        for images, labels in pairs(retain):
            optimizer.zero_grad()
            functional.cross_entropy(net(images), labels).backward()
            optimizer.step()


def msg(net: ResNet, retain: Any, forget: Any, val: Any) -> None:
    net.eval()
    net.zero_grad()
    first = torch.utils.data.Subset(retain.dataset, range(len(forget.dataset)))
    for images, labels in pairs(DataLoader(first, batch_size=64)):
        functional.cross_entropy(net(images), labels).backward()
    for images, labels in pairs(forget):
        (-functional.cross_entropy(net(images), labels)).backward()
    masks = {}
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            mask = torch.zeros_like(module.weight).bool()
            order = torch.topk(-module.weight.grad.abs().view(-1), k=round(0.3 * mask.nelement())).indices
            mask.view(-1)[order] = True
            fresh = torch.empty_like(module.weight)
            nn.init.kaiming_normal_(fresh, mode="fan_out", nonlinearity="relu")
            module.weight.data = torch.where(mask, fresh, module.weight.data)
            scale = mask.clone().float()
            scale[scale == 0] += 0.1
            masks[module] = scale
    net.zero_grad()
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4)
    for epoch in range(5):
        for group in optimizer.param_groups:
            group["lr"] = 0.001 * ((epoch + 1) / 3 if epoch + 1 <= 3 else (6 - (epoch + 1)) / (6 - 3))
        for images, labels in pairs(retain):
            optimizer.zero_grad()
            functional.cross_entropy(net(images), labels).backward()
            for module, scale in masks.items():
                module.weight.grad = module.weight.grad * scale
            optimizer.step()


def salun(net: ResNet, retain: Any, forget: Any, val: Any) -> None:
    net.eval()
    gradients = [torch.zeros_like(parameter) for parameter in net.parameters()]
    for images, labels in pairs(forget):
        net.zero_grad()
        (-functional.cross_entropy(net(images), labels)).backward()
        for summed, parameter in zip(gradients, net.parameters(), strict=True):
            summed.add_(parameter.grad)
    everything = -torch.cat([gradient.abs().flatten() for gradient in gradients])
    ranks = torch.argsort(torch.argsort(everything))
    chosen = (ranks < int(len(ranks) * 0.5)).split([gradient.numel() for gradient in gradients])
    masks = [part.view_as(gradient) for part, gradient in zip(chosen, gradients, strict=True)]
    original = [parameter.detach().clone() for parameter in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.013, momentum=0.9, weight_decay=5e-4)
    net.train()
    for _ in range(10):
        for loader, at_random in ((forget, True), (retain, False)):
            for images, labels in loader_pairs(loader):
                targets = torch.randint(0, 4, labels.shape) if at_random else labels
                loss = functional.cross_entropy(net(images), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    for parameter, mask, before in zip(net.parameters(), masks, original, strict=True):
                        parameter.copy_(torch.where(mask, parameter, before))


def loader_pairs(loader: Any) -> Any:
    return ((sample["image"], sample["label"]) for sample in loader)


PROGRAMS: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "scrub": (scrub, {"preset": "small-scale", "RETAIN_BATCH": 0, "FORGET_BATCH": 0}),
    "cf_k": (lambda net, retain, *_: last_layers(net, retain, draws=False), {"K": 5, "EPOCHS": 4}),
    "eu_k": (lambda net, retain, *_: last_layers(net, retain, draws=True), {"K": 5, "EPOCHS": 4}),
    "rni": (rni, {"preset": "deep-unlearn"}),
    "msg": (msg, {}),
    "salun": (salun, {"preset": "salun"}),
}


@pytest.mark.parametrize("method", sorted(PROGRAMS))
def test_method_takes_the_transcribed_steps(method: str) -> None:
    program, settings = PROGRAMS[method]
    with as_stored():
        torch.manual_seed(0)
        original = ResNet().train()
        expected, own = copy.deepcopy(original), copy.deepcopy(original)
        torch.manual_seed(1)
        program(expected, *loaders())
        module = ModuleType(method)
        exec(compile(render(method, settings), method, "exec"), module.__dict__)
        if hasattr(module, "DataLoader"):
            module.DataLoader = in_stored_order  # type: ignore[attr-defined]
        torch.manual_seed(1)
        module.unlearning(own, *loaders())
    before, mine, theirs = (net.state_dict() for net in (original, own, expected))
    assert any(not torch.equal(before[name], theirs[name]) for name in before)
    for name in theirs:
        torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=1e-9, msg=lambda t, name=name: f"{name}: {t}")


def test_rni_takes_normalisation_by_type_unless_told_otherwise() -> None:
    module = ModuleType("rni")
    exec(compile(render("rni", {}), "rni", "exec"), module.__dict__)
    net = ResNet()
    by_type = module.normalisation(net, dict(net.named_parameters()))
    assert "layer2.0.downsample.1.weight" in by_type
    module.BY_NAME = True  # type: ignore[attr-defined]
    assert by_type - module.normalisation(net, dict(net.named_parameters())) == {
        "layer2.0.downsample.1.weight",
        "layer2.0.downsample.1.bias",
    }
