"""What the methods that change weights directly claim to do happens."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import ConcatDataset, DataLoader

from lethe.methods import fisher, influence, salun, ssd, ssd_adaptive
from tests.lethe.methods.tiny_data import changed


def importances(method, problem):
    joined = DataLoader(ConcatDataset([problem.retain.dataset, problem.forget.dataset]), problem.retain.batch_size)
    full = method.importance(problem.net, method.batches(joined, problem.net))
    return full, method.importance(problem.net, method.batches(method.ordered(problem.forget), problem.net))


def scaled_weights(problem):
    pairs = [(problem.before[name], parameter.detach()) for name, parameter in problem.net.named_parameters()]
    return torch.cat([(old != new).flatten() for old, new in pairs])


def test_ssd_scales_exactly_the_selected_weights(monkeypatch, trained):
    monkeypatch.setattr(ssd, "ALPHA", 1.5)
    full, forget = importances(ssd, trained())
    problem = trained()
    ssd.unlearning(problem.net, *problem.data)
    touched = 0
    for (name, new), whole, part in zip(problem.net.named_parameters(), full, forget, strict=True):
        selected, old = part > 1.5 * whole, problem.before[name]
        assert torch.equal(new[~selected], old[~selected])
        torch.testing.assert_close(new[selected], (old * whole / part)[selected])
        touched += int(selected.sum())
    assert 0 < touched < len(scaled_weights(problem))


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


def test_ssd_adaptive_changes_the_share_set_by_the_forget_set(trained):
    problem = trained()
    ssd_adaptive.unlearning(problem.net, *problem.data)
    expected = math.log1p(100 * 24 / 120) / 100  # 3 per cent
    assert float(scaled_weights(problem).float().mean()) == pytest.approx(expected, abs=0.008)


def test_ssd_adaptive_threshold_is_the_percentile():
    ratios = torch.arange(1.0, 1002.0)
    threshold = ssd_adaptive.threshold([ratios, torch.tensor([math.nan])], [torch.ones(1001), torch.zeros(1)], 0.5)
    assert threshold == math.floor(1000 * (1 - math.log(51) / 100)) + 1


def test_salun_mask_holds_the_largest_gradients():
    masks = salun.saliency_masks([torch.tensor([[1.0, -5.0], [0.0, 2.0]]), torch.tensor([-3.0, 0.5])], 0.5)
    assert [mask.tolist() for mask in masks] == [[[False, True], [False, True]], [True, False]]


@pytest.mark.parametrize("mixed", [False, True])
def test_salun_leaves_weights_outside_the_mask_as_they_were(monkeypatch, trained, mixed):
    monkeypatch.setattr(salun, "MIXED", mixed)
    monkeypatch.setattr(salun, "THRESHOLD", 0.3)
    problem = trained()
    salun.unlearning(problem.net, *problem.data)
    assert float(scaled_weights(problem).float().mean()) == pytest.approx(0.3, abs=0.02)


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


def test_influence_direction_is_the_difference_of_mean_gradients(monkeypatch, trained):
    problem = trained()
    monkeypatch.setattr(influence, "ALPHA", 2.0)
    monkeypatch.setattr(influence, "inverse_hessian_product", lambda net, loader, vector: vector)
    difference = gradient(problem, problem.forget) - gradient(problem, problem.retain)
    influence.unlearning(problem.net, *problem.data)
    old = torch.cat([problem.before[name].flatten() for name, _ in problem.net.named_parameters()])
    moved = nn.utils.parameters_to_vector(problem.net.parameters()) - old
    torch.testing.assert_close(moved.detach(), 2.0 * 24 / 120 * difference, rtol=1e-3, atol=1e-6)


def gradient(problem, loader):
    problem.net.eval()
    dataset = loader.dataset
    loss = functional.cross_entropy(problem.net(dataset.inputs(slice(None))), dataset.stored.labels)
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(problem.net.parameters()))])


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
