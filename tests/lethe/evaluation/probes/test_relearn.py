"""Relearning the forget set from weights."""

import pytest
import torch

from lethe.evaluation.probes.model_probes import mean_loss, relearn_epochs


@pytest.fixture
def forget_set():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(90, 5, generator=generator)
    return images, (images[:, 0] > 0).long()


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Linear(5, 2)


def epochs(net, images, labels, original_loss, **options):
    return relearn_epochs(
        net, net.state_dict(), images, labels, original_loss=original_loss, learning_rate=0.5, **options
    )


def test_model_that_knows_the_set_needs_no_epoch(forget_set):
    net = network(0)
    assert epochs(net, *forget_set, mean_loss(net, *forget_set)) == 0


def test_lower_aim_takes_longer(forget_set):
    net = network(0)
    easy, hard = (epochs(net, *forget_set, loss) for loss in (0.4, 0.2))
    assert 0 < easy < hard < 100


def test_model_that_never_gets_there_is_censored(forget_set):
    assert epochs(network(0), *forget_set, 1e-9, max_epochs=3) == 3


def test_probe_changes_neither_network_nor_weights(forget_set):
    net = network(0)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    epochs(net, *forget_set, 0.3)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_dropout_is_seeded_and_leaves_torchs_generator_alone(forget_set):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(5, 64), torch.nn.ReLU(), torch.nn.Dropout(0.9), torch.nn.Linear(64, 2))
    found = set()
    for seed in range(4):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.add(epochs(net, *forget_set, 0.25))
        assert torch.equal(torch.get_rng_state(), before)
    assert len(found) == 1
    assert 0 < found.pop() < 100


def test_batch_norm_never_sees_an_example_alone(forget_set):
    images, labels = (part[:65] for part in forget_set)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    assert 0 < epochs(net, images, labels, 0.2) < 100
