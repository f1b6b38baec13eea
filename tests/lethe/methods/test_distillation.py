"""What the methods with a teacher, and those for the removal of a class, claim to do happens."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from lethe.methods import bad_teacher, boundary_shrink, duck, scrub, unsir
from tests.lethe.methods.tiny_data import accuracy, make_problem


def test_scrub_error_counts_only_the_classes_asked_for(trained):
    problem = trained()
    with torch.no_grad():
        problem.net[-1].bias.copy_(torch.tensor([1e6, 0, 0, 0]))  # everything is called class 0
    assert scrub.error(problem.net, problem.validation, torch.tensor([0])) == 0.0
    assert scrub.error(problem.net, problem.validation, torch.tensor([1, 2])) == 1.0


@pytest.mark.parametrize("kind", ["mlp", "resnet20", "vit"])
def test_bad_teacher_is_drawn_again_entirely(kind):
    net = make_problem(kind).net
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(7.0)
    bad_teacher.reinitialise(net)
    assert all((parameter != 7.0).all() for parameter in net.parameters())


def test_bad_teacher_uses_the_stated_share_of_the_retain_set(trained):
    problem = trained()
    seen = list(bad_teacher.mixed(problem.net, problem.retain, problem.forget, share=0.25))
    is_forget = torch.cat([flags for _, _, flags, _ in seen])
    assert (int((~is_forget).sum()), int(is_forget.sum())) == (24, 24)
    assert is_forget[:16].any()
    assert not is_forget[:16].all()


def test_mixed_batches_name_the_forget_examples_that_they_hold(trained):
    problem = trained()
    for images, labels, is_forget, index in bad_teacher.mixed(problem.net, problem.retain, problem.forget):
        for row in range(len(labels)):
            sample = problem.forget.dataset[int(index[row])]
            same = torch.equal(sample["image"], images[row]) and sample["age_group"] == labels[row]
            assert same if is_forget[row] else index[row] == 0


def test_boundary_shrink_labels_are_wrong_ones(trained):
    problem = trained()
    for sample in problem.forget:
        nearest = boundary_shrink.nearest_wrong(problem.net, sample["image"], sample["age_group"])
        assert (nearest != sample["age_group"]).all()


def test_boundary_shrink_takes_the_class_across_the_boundary():
    net = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.0], [0.9, 0.5], [-1.0, 0.0]]))
    images, labels = torch.tensor([[1.0, 0.0], [2.0, 0.1]]), torch.tensor([0, 0])
    assert boundary_shrink.nearest_wrong(net, images, labels).tolist() == [1, 1]


def test_boundary_shrink_forgets_without_the_retain_set(monkeypatch, trained, unread):
    problem = trained()
    monkeypatch.setattr(boundary_shrink, "LR", 0.02)
    boundary_shrink.unlearning(problem.net, unread, problem.forget, unread)
    assert accuracy(problem.net, problem.forget) < 0.5


def test_unsir_noise_is_worse_for_its_class_than_plain_noise(trained):
    problem = trained()
    example, labels = next(iter(problem.retain))["image"], torch.arange(4).repeat(8)
    torch.manual_seed(0)
    worst = unsir.worst_noise(problem.net, example, labels)
    plain = example.mean() + example.std() * torch.randn_like(worst)
    losses = [functional.cross_entropy(problem.net(images), labels).item() for images in (worst, plain)]
    assert losses[0] > 1.5 * losses[1]


def test_duck_distance_is_to_the_nearest_wrong_centroid():
    centres = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    features, labels = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0])
    distance = duck.Targets(centres).distance(features, labels, place=0, fresh=True)
    assert float(distance) == pytest.approx((1.0 + 0.0) / 2)


def test_duck_pulls_nothing_to_a_class_without_retain_images():
    centres = torch.tensor([[1.0, 0.0], [math.nan, math.nan], [-1.0, 0.0]])
    distance = duck.Targets(centres).distance(torch.tensor([[0.0, 3.0]]), torch.tensor([0]), place=0, fresh=True)
    assert float(distance) == pytest.approx(1.0)


def test_duck_centroids_are_mean_inputs_of_the_last_layer(trained):
    problem = trained()
    with duck.ClassifierInputs(problem.net) as features:
        centres = duck.centroids(problem.net, problem.retain, features)
    dataset = problem.retain.dataset
    hidden = problem.net[2](problem.net[1](problem.net[0](dataset.inputs(slice(None)))))
    expected = torch.stack([hidden[dataset.stored.labels == label].mean(0) for label in range(4)])
    torch.testing.assert_close(centres, expected.detach())


def test_duck_stops_once_forget_accuracy_is_down_to_validation(monkeypatch, trained):
    epochs = []
    monkeypatch.setattr(duck, "accuracy", lambda net, loader: 0.5)
    monkeypatch.setattr(duck, "one_epoch", lambda *given: epochs.append(given))
    duck.unlearning(trained().net, *trained().data)
    assert len(epochs) == 1
