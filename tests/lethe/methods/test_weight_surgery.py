"""What the methods that change weights directly claim to do happens."""

import pytest
import torch
from torch.nn import functional

from lethe.methods import fisher, influence, ssd
from tests.lethe.methods.tiny_data import changed


def test_ssd_never_enlarges_a_weight():
    weights, full, forget = torch.ones(3), torch.tensor([1.0, 1.0, 0.0]), torch.tensor([2.0, 9.0, 0.0])
    ssd.dampen(weights, full, forget, alpha=1.0, factor=4.0)
    assert weights.tolist() == pytest.approx([1.0, 4 / 9, 1.0])


def test_ssd_of_a_part_of_the_retain_set_differs_between_seeds(monkeypatch, trained):
    monkeypatch.setattr(ssd, "ALPHA", 1.5)
    monkeypatch.setattr(ssd, "SHARE", 0.3)
    results = []
    for seed in (0, 1):
        problem = trained()
        torch.manual_seed(seed)
        ssd.unlearning(problem.net, *problem.data)
        results.append(torch.cat([parameter.flatten() for parameter in problem.net.parameters()]))
    assert not torch.equal(*results)


def test_fisher_information_is_the_expected_squared_gradient(trained):
    problem = trained()
    information, n_classes = fisher.fisher_information(problem.net, problem.retain, len(problem.retain.dataset))
    expected = torch.zeros(4)
    for image in problem.retain.dataset.inputs(slice(None)):
        probabilities = problem.net(image[None])[0].softmax(0).detach()
        for chosen, weight in enumerate(probabilities):
            expected += weight * (probabilities - functional.one_hot(torch.tensor(chosen), 4)) ** 2
    torch.testing.assert_close(information[-1], expected / len(problem.retain.dataset), rtol=1e-3, atol=1e-9)
    assert n_classes == 4


def test_fisher_noise_is_larger_where_information_is_small(monkeypatch):
    monkeypatch.setattr(fisher, "ALPHA", 1.0)
    information = torch.tensor([[0.01, 0.03], [1.0, 1.0], [0.0, 0.0]])
    variance = fisher.noise_variance(information, 4, [])
    mean = (100 + 100 / 3) / 2
    torch.testing.assert_close(variance, torch.tensor([[mean, mean], [1.0, 1.0], [1e3, 1e3]]))
    torch.testing.assert_close(fisher.noise_variance(torch.zeros(4), 4, []), torch.full((4,), 1e3))
    torch.testing.assert_close(fisher.noise_variance(torch.zeros(5), 4, []), torch.full((5,), 1e4))


def test_fisher_adds_noise_of_the_stated_size(monkeypatch, trained):
    monkeypatch.setattr(fisher, "fisher_information", lambda net, loader, n: ([torch.ones(48, 64)] * 4, 10))
    monkeypatch.setattr(fisher, "ALPHA", 0.25)
    monkeypatch.setattr(fisher, "noise_variance", lambda values, n_classes, removed: torch.tensor(0.25))
    problem = trained()
    fisher.unlearning(problem.net, *problem.data)
    assert float((problem.net[1].weight.detach() - problem.before["1.weight"]).std()) == pytest.approx(0.5, rel=0.1)


def test_influence_product_follows_the_woodfisher_updates(monkeypatch, trained):
    problem = trained()
    gradients = iter(torch.eye(3)[[0, 0, 1]])
    monkeypatch.setattr(influence, "example_gradient", lambda net, images, labels: next(gradients))
    monkeypatch.setattr(influence, "SAMPLES", 2)
    monkeypatch.setattr(influence, "N", 3.0)
    product = influence.inverse_hessian_product(problem.net, problem.retain, torch.tensor([8.0, 4.0, 2.0]))
    # o = e0; g = e0: overlap 1, k0 = 8 - 8/4 * 1 = 6, o = 3/4 e0; g = e1: overlap 0, k -= 4/3 * 3/4 e0
    assert product.tolist() == pytest.approx([5.0, 4.0, 2.0])


def test_ssd_reads_nothing_at_random(monkeypatch, trained):
    monkeypatch.setattr(ssd, "ALPHA", 1.5)
    problem = trained()
    state = torch.get_rng_state()
    ssd.unlearning(problem.net, *problem.data)
    assert changed(problem)
    first = torch.cat([parameter.flatten() for parameter in problem.net.parameters()])
    torch.set_rng_state(state)
    torch.rand(7)
    other = trained()
    ssd.unlearning(other.net, *other.data)
    assert torch.equal(first, torch.cat([parameter.flatten() for parameter in other.net.parameters()]))
