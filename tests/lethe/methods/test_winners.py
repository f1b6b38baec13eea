"""What the entries of the NeurIPS 2023 competition claim to do happens."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from lethe.methods import cfw, ct, fcs, forget, kde, msg, prmq, rni
from tests.lethe.methods.tiny_data import changed, make_problem, mean_entropy, outputs, set_all


def test_fcs_uniform_loss_is_nothing_for_equal_logits():
    assert fcs.uniform_loss(torch.full((3, 7), 2.5)).item() == pytest.approx(0.0, abs=1e-6)
    assert fcs.uniform_loss(torch.tensor([[9.0, 0.0]])).item() > 1


def test_fcs_first_erasing_flattens_the_forget_outputs(monkeypatch, trained, unread):
    problem = trained()
    entropy = mean_entropy(problem.net, problem.forget)
    monkeypatch.setattr(fcs, "UNIFORM_LR", 0.1)
    fcs.erase0(problem.net, unread, problem.forget, unread, {})
    assert mean_entropy(problem.net, problem.forget) > 1.5 * entropy


def test_fcs_contrast_lowers_its_loss_and_anneals(monkeypatch, trained):
    problem = trained()
    state, rates = {}, []
    set_all(monkeypatch, fcs, ROUNDS=3, CONTRAST_LR=0.01, set_lr=lambda optimizer, lr: rates.append(lr))
    retain = outputs(problem.net, problem.retain)[0]
    before = fcs.contrastive_loss(outputs(problem.net, problem.forget)[0], retain)
    for _ in range(3):
        fcs.erase(problem.net, *problem.data, state)
    after = fcs.contrastive_loss(outputs(problem.net, problem.forget)[0], outputs(problem.net, problem.retain)[0])
    assert after < before
    assert rates == pytest.approx([1e-6 + (0.01 - 1e-6) * (1 + math.cos(math.pi * i / 6)) / 2 for i in range(6)])


def test_fcs_alternates_erasing_and_repairing(monkeypatch, trained):
    calls = []
    for name in ("erase0", "erase", "repair"):
        monkeypatch.setattr(fcs, name, lambda *given, name=name: calls.append(name))
    fcs.unlearning(trained().net, *trained().data)
    assert calls == ["erase0", *["erase", "repair"] * 8]


def test_msg_draws_the_share_of_smallest_gradients_again(monkeypatch):
    monkeypatch.setattr(msg, "PX", 0.3)
    weight = nn.Parameter(torch.zeros(4, 5, 3, 3))
    weight.grad = torch.randn(weight.shape)
    mask = msg.draw_again(weight)
    assert int(mask.sum()) == round(0.3 * weight.numel())
    assert weight.grad[mask].abs().max() < weight.grad[~mask].abs().min()
    assert (weight[mask] != 0).all()
    assert (weight[~mask] == 0).all()


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


def test_msg_gradient_is_that_of_retain_minus_forget_loss(trained):
    problem = trained()
    problem.net.eval()
    msg.accumulate_gradient(problem.net, problem.retain, sign=1)
    first = problem.net[1].weight.grad.clone()
    msg.accumulate_gradient(problem.net, problem.forget, sign=-1)
    forget_part = problem.net[1].weight.grad - first
    assert torch.norm(first) > 0
    problem.net.zero_grad()
    dataset = problem.forget.dataset
    functional.cross_entropy(problem.net(dataset.inputs(slice(None))), dataset.stored.labels).backward()
    assert functional.cosine_similarity(forget_part.flatten(), problem.net[1].weight.grad.flatten(), dim=0) < -0.9


def test_msg_learning_rate_goes_up_and_down():
    assert [msg.linear_factor(epoch, 5) for epoch in range(5)] == pytest.approx([1 / 3, 2 / 3, 1, 2 / 3, 1 / 3])


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


def test_cfw_adds_noise_before_the_last_epoch_after_erasing(monkeypatch, trained):
    sizes = []
    monkeypatch.setattr(cfw, "add_noise", lambda net, sigma: sizes.append(sigma))
    problem = trained()
    cfw.unlearning(problem.net, *problem.data)
    cfw.repair(problem.net, *problem.data, {}, 2, 0.01)
    assert sizes == [cfw.SIGMA, cfw.LAST_SIGMA]


def test_prmq_draws_the_smallest_weights_of_all_layers_again(monkeypatch, trained):
    monkeypatch.setattr(prmq, "AMOUNT", 0.9)
    problem = trained()
    old = torch.cat([problem.before[name].flatten() for name, _ in problem.net.named_parameters()])
    prmq.erase(problem.net, *problem.data, {})
    new = nn.utils.parameters_to_vector(problem.net.parameters()).detach()
    kept = old == new
    assert float(kept.float().mean()) == pytest.approx(0.1, abs=0.001)
    assert old[kept].abs().min() >= old[~kept].abs().max()
    assert problem.net[1].weight.abs().max() <= max(1 / math.sqrt(64), float(old.abs().max()))


def test_prmq_leaves_numbers_of_half_precision(trained):
    problem = trained()
    prmq.unlearning(problem.net, *problem.data)
    for tensor in problem.net.state_dict().values():
        assert torch.equal(tensor, tensor.half().float())


def test_prmq_rounding_keeps_what_half_precision_cannot_hold():
    norm = nn.BatchNorm1d(2)
    norm.running_var.fill_(1e6)
    prmq.round_to_half(norm)
    assert (norm.running_var == 1e6).all()


def test_prmq_takes_a_part_of_an_epoch(monkeypatch, trained):
    problem, steps, state = trained(), [], {}
    prmq.prepare(problem.net, *problem.data, state)
    monkeypatch.setattr(prmq, "step", lambda optimizer, loss: steps.append(loss))
    prmq.repair(problem.net, *problem.data, state, 2.5, 0.01)
    assert len(steps) == 16  # six batches an epoch, and one more


def test_ct_transposes_every_square_kernel(trained):
    problem = trained("resnet20")
    ct.erase(problem.net, *problem.data, {})
    for name, module in problem.net.named_modules():
        if isinstance(module, nn.Conv2d):
            assert torch.equal(module.weight, problem.before[f"{name}.weight"].transpose(2, 3))


def test_ct_refuses_a_network_without_convolutions():
    problem = make_problem("mlp")
    with pytest.raises(ValueError, match="the network has none"):
        ct.unlearning(problem.net, *problem.data)


def test_kde_draws_first_and_last_layer_again(monkeypatch, trained):
    problem, state = trained("small_cnn"), {}
    monkeypatch.setattr(kde, "WARM_UP_EPOCHS", 0)
    kde.prepare(problem.net, *problem.data, state)
    kde.erase(problem.net, *problem.data, state)
    layers = ("convolutions.0", "classifier")
    assert changed(problem) == {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}


def test_kde_distils_on_the_validation_set_without_the_forget_set(monkeypatch, trained, unread):
    distances = []
    for epochs in (0, 20):
        problem, state = trained(), {}
        set_all(monkeypatch, kde, WARM_UP_EPOCHS=epochs, WARM_UP_LR=0.1)
        kde.prepare(problem.net, unread, unread, problem.validation, state)
        torch.manual_seed(0)
        kde.erase(problem.net, unread, unread, problem.validation, state)
        student, teacher = (outputs(net, problem.validation)[0] for net in (problem.net, state["teacher"]))
        distances.append(kde.soft_kl(student, teacher).item())
    assert distances[1] < 0.7 * distances[0]


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


def test_rni_adds_no_noise_before_the_first_epoch(monkeypatch, trained):
    calls = []
    monkeypatch.setattr(rni, "add_noise", lambda *arguments: calls.append(arguments))
    rni.erase(trained().net, *trained().data, {})
    assert len(calls) == rni.NOISED_EPOCHS - 1


def test_rni_ends_with_a_larger_learning_rate(monkeypatch, trained):
    rates = []
    monkeypatch.setattr(rni, "train", lambda net, loader, optimizer, given: rates.extend(given))
    rni.repair(trained().net, *trained().data, {}, 4, 2e-4)
    assert rates == pytest.approx([2e-4, 2e-4, 2e-4, 1e-3])


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
