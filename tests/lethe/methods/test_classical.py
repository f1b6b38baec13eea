"""What the classical methods claim to do happens."""

import pytest
import torch
from torch import nn

from lethe.methods import (
    amnesiac_relabel,
    cf_k,
    eu_k,
    finetune,
    gradient_ascent,
    l1_sparse,
    langevin,
    original,
    random_label,
)
from lethe.methods.common import annealed
from tests.lethe.methods.tiny_data import changed, make_problem, mean_entropy, mean_loss, set_all


def test_original_changes_nothing(trained):
    problem = trained("resnet20")
    original.unlearning(problem.net, *problem.data)
    assert changed(problem) == set()


def test_finetune_lowers_the_retain_loss_without_the_forget_set(monkeypatch, unread):
    problem = make_problem("mlp")
    loss = mean_loss(problem.net, problem.retain)
    monkeypatch.setattr(finetune, "REPAIR_LR", 0.05)
    finetune.unlearning(problem.net, problem.retain, unread, unread)
    assert mean_loss(problem.net, problem.retain) < 0.9 * loss


def test_learning_rates_fall_by_a_cosine_or_stay():
    assert annealed(0.4, 4) == pytest.approx([0.4, 0.3414213562, 0.2, 0.0585786438])
    assert annealed(0.4, 3, "constant") == [0.4, 0.4, 0.4]


def test_gradient_ascent_raises_the_forget_loss_without_the_retain_set(monkeypatch, trained, unread):
    problem = trained()
    monkeypatch.setattr(gradient_ascent, "LR", 0.05)
    loss = mean_loss(problem.net, problem.forget)
    gradient_ascent.unlearning(problem.net, unread, problem.forget, unread)
    assert mean_loss(problem.net, problem.forget) > 2 * loss


def test_gradient_ascent_stops_at_the_ceiling(monkeypatch, trained):
    problem, losses, step = trained(), [], gradient_ascent.step
    set_all(monkeypatch, gradient_ascent, LR=0.2, EPOCHS=100, CEILING=3.0)
    monkeypatch.setattr(gradient_ascent, "step", lambda opt, loss: losses.append(-loss.item()) or step(opt, loss))
    gradient_ascent.unlearning(problem.net, *problem.data)
    assert 0 < len(losses) < 200
    assert max(losses) < 3.0


def test_random_label_erasing_makes_the_forget_set_uncertain(monkeypatch, trained, unread):
    problem = trained()
    entropy = mean_entropy(problem.net, problem.forget)
    set_all(monkeypatch, random_label, ERASE_LR=0.05, ERASE_EPOCHS=5)
    random_label.erase(problem.net, unread, problem.forget, unread, {})
    assert mean_entropy(problem.net, problem.forget) > 3 * entropy


def test_amnesiac_wrong_labels_are_wrong_and_uniform():
    labels = torch.arange(4).repeat(3000)
    wrong = amnesiac_relabel.wrong_labels(labels, torch.rand(len(labels)), 4)
    counts = torch.bincount(4 * labels + wrong, minlength=16).view(4, 4)
    assert counts.diagonal().tolist() == [0, 0, 0, 0]
    assert counts[~torch.eye(4, dtype=torch.bool)].min() > 850


def test_l1_sparse_penalty_falls_linearly_to_nothing(monkeypatch):
    set_all(monkeypatch, l1_sparse, ALPHA=1.0, EPOCHS_WITHOUT=1)
    assert [l1_sparse.penalty_weight(epoch, 5) for epoch in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]


@pytest.mark.parametrize("method", [eu_k, cf_k])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_methods_change_exactly_the_last_k_layers(monkeypatch, trained, method, k):
    problem = trained("resnet20")
    monkeypatch.setattr(method, "K", k)
    method.unlearning(problem.net, *problem.data)
    parameters = {name for name, _ in problem.net.named_parameters()}
    touched = {name.rpartition(".")[0] for name in changed(problem) & parameters}
    tail = ["fc", "blocks.8.conv2", "blocks.8.conv1"][:k]
    norms = {"blocks.8.bn1": 3, "blocks.8.bn2": 2}
    assert touched == {*tail, *(name for name, from_k in norms.items() if k >= from_k)}


def test_eu_k_draws_the_last_layers_again_and_cf_k_keeps_them(monkeypatch, trained):
    for method, draws in ((eu_k, True), (cf_k, False)):
        problem = trained()
        set_all(monkeypatch, method, K=1, EPOCHS=0)
        method.unlearning(problem.net, *problem.data)
        assert bool(changed(problem)) is draws


def test_langevin_step_adds_noise_of_the_stated_size(monkeypatch):
    net = nn.Linear(300, 300)
    before = net.weight.detach().clone()
    set_all(monkeypatch, langevin, SIGMA=0.5, L2=0.0)
    torch.manual_seed(0)
    langevin.noisy_step(net, {name: torch.zeros_like(weight) for name, weight in net.named_parameters()}, 0.02)
    assert float((net.weight.detach() - before).std()) == pytest.approx(0.5 * 0.2, rel=0.02)


def test_langevin_descends_on_the_retain_set(monkeypatch, unread):
    problem = make_problem("mlp")
    loss = mean_loss(problem.net, problem.retain)
    set_all(monkeypatch, langevin, SIGMA=0.0, REPAIR_LR=0.1, REPAIR_EPOCHS=5)
    langevin.unlearning(problem.net, problem.retain, unread, unread)
    assert mean_loss(problem.net, problem.retain) < 0.9 * loss
