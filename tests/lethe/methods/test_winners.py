"""What the entries of the NeurIPS 2023 competition claim to do happens."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from lethe.methods import cfw, ct, forget, msg, prmq, rni
from tests.lethe.methods.tiny_data import changed, make_problem, outputs, set_all


def test_msg_erases_convolutions_only_and_slows_the_rest(trained):
    problem, state = trained("small_cnn"), {}
    msg.erase(problem.net, *problem.data, state)
    convolutions = {f"convolutions.{index}.weight" for index in range(2)}
    assert changed(problem) == convolutions
    weight = problem.net.convolutions[0].weight
    redrawn = weight != problem.before["convolutions.0.weight"]
    weight.sum().backward()
    torch.testing.assert_close(weight.grad, torch.where(redrawn, 1.0, msg.SLOW))
    msg.finish(problem.net, state)
    weight.grad = None
    weight.sum().backward()
    assert (weight.grad == 1).all()


@pytest.mark.parametrize(("noise", "expected"), [("first", 1), ("all", 2)])
def test_cfw_adds_noise_to_convolutions(monkeypatch, trained, noise, expected):
    problem = trained("small_cnn")
    monkeypatch.setattr(cfw, "NOISE", noise)
    cfw.add_noise(problem.net, 0.6)
    assert changed(problem) == {f"convolutions.{index}.weight" for index in range(expected)}


def test_cfw_noise_has_the_stated_size(monkeypatch):
    net = nn.Sequential(nn.Conv2d(30, 30, 5))
    before = net[0].weight.detach().clone()
    torch.manual_seed(0)
    cfw.add_noise(net, 0.6)
    assert (net[0].weight.detach() - before).std().item() == pytest.approx(0.6, rel=0.02)


def test_cfw_weighs_the_largest_class(trained):
    problem = trained()
    counts = cfw.class_counts(problem.retain, problem.net)
    weights = cfw.class_weights(counts)
    assert weights.tolist() == pytest.approx([1.0, 0.05, 0.05, 0.05])
    labels = problem.retain.dataset.stored.labels
    assert cfw.loss_scale(problem.net, problem.retain) == pytest.approx(float(weights[labels].mean()))


def test_prmq_rounding_keeps_what_half_precision_cannot_hold():
    norm = nn.BatchNorm1d(2)
    norm.running_var.fill_(1e6)
    prmq.round_to_half(norm)
    assert (norm.running_var == 1e6).all()


def test_ct_refuses_a_network_without_convolutions():
    problem = make_problem("mlp")
    with pytest.raises(ValueError, match="the network has none"):
        ct.unlearning(problem.net, *problem.data)


def test_rni_resets_the_classifier_and_moves_only_picked_tensors(monkeypatch, trained):
    problem = trained("resnet20")
    set_all(monkeypatch, rni, NOISED_EPOCHS=1, LAYERS=3)
    rni.erase(problem.net, *problem.data, {})
    parameters = {name for name, _ in problem.net.named_parameters()}
    moved = {name for name in changed(problem) & parameters if "bn" not in name}
    assert {"fc.weight", "fc.bias"} <= moved
    assert len(moved - {"fc.weight", "fc.bias"}) <= 3


def test_rni_adds_noise_to_tensors_that_no_earlier_epoch_picked():
    tensors = {name: nn.Parameter(torch.zeros(200, 10)) for name in "abcd"}
    torch.manual_seed(0)
    rni.add_noise(tensors, ["d", "a", "b"], {"b"})
    assert {name for name, tensor in tensors.items() if (tensor != 0).any()} == {"a", "d"}
    assert tensors["a"].detach().std().item() == pytest.approx(0.04, rel=0.05)


def test_forget_draws_the_stated_number_of_layers_again(monkeypatch, trained):
    problem = trained("resnet20")
    monkeypatch.setattr(forget, "LAYERS", 4)
    forget.erase(problem.net, *problem.data, {})
    assert len({name.rpartition(".")[0] for name in changed(problem)}) == 4


def test_forget_pulls_the_network_to_the_original_outputs(trained):
    problem, state = trained(), {}
    forget.prepare(problem.net, *problem.data, state)
    problem.net[3].reset_parameters()
    target = outputs(state["teacher"], problem.retain)[0]
    before = functional.mse_loss(outputs(problem.net, problem.retain)[0], target)
    forget.repair(problem.net, *problem.data, state, 5, 0.01)
    assert functional.mse_loss(outputs(problem.net, problem.retain)[0], target) < 0.5 * before


def test_forget_distils_on_noisy_images(monkeypatch, trained):
    problem, seen = trained(), []
    state = {"teacher": lambda images: seen.append(images) or torch.zeros(len(images), 4)}
    monkeypatch.setattr(forget, "NOISE", 0.5)
    forget.repair(problem.net, *problem.data, state, 1, 0.01)
    stored = problem.retain.dataset.inputs(slice(None))
    distance = torch.cdist(torch.cat(seen).flatten(1), stored.flatten(1)).amin(1)
    assert (distance > 0.1).all()
