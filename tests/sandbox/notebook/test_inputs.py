"""Networks that a notebook builds take images as they are."""

from tests.support.forked_children import run_code

CODE = """
import torch, copy
from torchvision import models
from sandbox.guest.notebook.entry import scale_in
from lethe.networks.small_networks import Mlp

torch.manual_seed(0)
plain = models.resnet18(num_classes=10).eval()
pictures = torch.randint(0, 256, (2, 3, 32, 32)).float()
description = {"input_scale": [0.5, 0.25, 0.125], "input_shift": -2.0}
scaled = pictures * torch.tensor(description["input_scale"]).view(3, 1, 1) - 2.0
assert scale_in(plain, description)
net = models.resnet18(weights=None, num_classes=10).eval()
net.load_state_dict(plain.state_dict())
assert list(net.state_dict()) == list(plain.state_dict())
assert torch.equal(net(pictures), plain(scaled))
assert torch.equal(copy.deepcopy(net)(pictures), plain(scaled))
assert scale_in(Mlp(64, 10), {"input_scale": 1.0, "input_shift": 0.0})
assert not scale_in(Mlp(64, 10), description)
"""


def test_a_network_scales_its_own_inputs() -> None:
    # In its own process: the class stays changed.
    run_code(CODE)
