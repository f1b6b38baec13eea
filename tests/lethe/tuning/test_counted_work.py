"""Work is what passes through networks, counted in examples."""

import pytest
import torch
from torch import nn

from lethe.tuning.split_run import counted_work


def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def test_a_training_step_is_a_pass_forward_and_one_back():
    net, images, labels = network(), torch.randn(7, 1, 2, 2), torch.zeros(7, dtype=torch.int64)
    loss = nn.CrossEntropyLoss()
    with counted_work(net) as work:
        loss(net(images), labels).backward()
        with torch.no_grad():
            net(images[:3])
    assert (work.forward, work.backward) == (10, 7)
    assert work.epochs(8) == pytest.approx((10 + 2 * 7) / (3 * 8))


def test_parts_called_one_by_one_count_as_the_whole():
    net, images = network(), torch.randn(5, 1, 2, 2)
    with counted_work(net) as work:
        net.forward(images).sum().backward()
    assert work.forward == pytest.approx(5)
    assert work.backward == pytest.approx(5)


def test_a_second_network_counts_too_and_an_error_ends_no_count():
    net, teacher, images = network(), network(), torch.randn(5, 1, 2, 2)
    with counted_work(net) as work:
        with pytest.raises(RuntimeError):
            net(torch.randn(5, 3))
        teacher(images)
        net(images)
    assert work.forward == pytest.approx(10)


def test_nothing_is_counted_after_the_block():
    net = network()
    plain = nn.Module.__call__
    with counted_work(net) as work:
        pass
    net(torch.randn(5, 1, 2, 2))
    assert work.forward == 0
    assert nn.Module.__call__ is plain


def test_examples_of_a_vectorised_map_are_counted():
    net, images, labels = network(), torch.randn(7, 1, 2, 2), torch.zeros(7, dtype=torch.int64)

    def loss(weights, image, label):
        return nn.functional.cross_entropy(torch.func.functional_call(net, weights, (image[None],)), label[None])

    with counted_work(net) as work:
        torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(dict(net.named_parameters()), images, labels)
    assert (work.forward, work.backward) == (7, 7)
