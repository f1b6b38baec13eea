"""New method: what it does to the weights. Fails when the method's essential line is removed."""

import copy

import pytest
import torch
from torch import nn

from lethe.cli.templates import new_method


def loader(n_batches: int) -> list[dict[str, torch.Tensor]]:
    """Return batches of two classes whose pictures differ, as a loader yields them."""
    labels = torch.arange(8) % 2
    images = torch.randn(n_batches, 8, 3, generator=torch.Generator().manual_seed(0)) + 4.0 * labels[:, None]
    return [{"image": batch, "label": labels} for batch in images]


def test_new_method_makes_every_weight_smaller() -> None:
    net = nn.Linear(3, 2)
    before = copy.deepcopy(net.state_dict())
    new_method.unlearning(net, [], [], [])
    for name, weights in net.state_dict().items():
        assert torch.allclose(weights, new_method.FACTOR * before[name])
    assert not net.training


def test_new_method_trains_on_the_retain_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_method, "LR", 0.1)
    torch.manual_seed(0)  # of the network's first weights
    net, retain = nn.Linear(3, 2), loader(20)
    new_method.unlearning(net, retain, [], [])
    hits = [net(batch["image"]).argmax(1) == batch["label"] for batch in retain]
    assert float(torch.cat(hits).float().mean()) > 0.9
