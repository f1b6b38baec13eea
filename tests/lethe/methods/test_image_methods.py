"""What image methods do beyond the stored trajectories of their authors' programs (tests/golden/trajectories)."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from lethe.methods import (
    amnesiac_relabel,
    bad_teacher,
    boundary_shrink,
    cf_k,
    cfw,
    common,
    duck,
    eu_k,
    forget,
    gradient_ascent,
    prmq,
    rni,
    scrub,
    ssd,
    unsir,
)
from tests.lethe.methods.tiny_data import Problem, changed, make_problem, outputs, set_all


@pytest.fixture(scope="module")
def trained_problems():
    recipes = {"mlp": (12, 0.003), "resnet20": (4, 0.003)}
    return {kind: make_problem(kind, epochs=epochs, lr=lr) for kind, (epochs, lr) in recipes.items()}


@pytest.fixture
def trained(trained_problems):
    """Return a problem of this kind whose network fits its data and may be changed."""

    def of(kind="mlp"):
        problem = trained_problems[kind]
        return Problem(copy.deepcopy(problem.net), *problem.data, problem.before)

    return of


def test_gradient_ascent_stops_at_the_ceiling(monkeypatch, trained):
    problem, losses, step = trained(), [], gradient_ascent.step
    set_all(monkeypatch, gradient_ascent, LR=0.2, EPOCHS=100, CEILING=3.0)
    monkeypatch.setattr(gradient_ascent, "step", lambda opt, loss: losses.append(-loss.item()) or step(opt, loss))
    gradient_ascent.unlearning(problem.net, *problem.data)
    assert 0 < len(losses) < 200
    assert max(losses) < 3.0


def test_amnesiac_wrong_labels_are_wrong_and_uniform():
    labels = torch.arange(4).repeat(3000)
    wrong = amnesiac_relabel.wrong_labels(labels, torch.rand(len(labels)), 4)
    counts = torch.bincount(4 * labels + wrong, minlength=16).view(4, 4)
    assert counts.diagonal().tolist() == [0, 0, 0, 0]
    assert counts[~torch.eye(4, dtype=torch.bool)].min() > 850


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


def test_boundary_shrink_takes_the_class_across_the_boundary():
    net = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.0], [0.9, 0.5], [-1.0, 0.0]]))
    images, labels = torch.tensor([[1.0, 0.0], [2.0, 0.1]]), torch.tensor([0, 0])
    assert boundary_shrink.nearest_wrong(net, images, labels).tolist() == [1, 1]


def test_unsir_noise_is_worse_for_its_class_than_plain_noise(trained):
    problem = trained()
    example, labels = next(iter(problem.retain))["image"], torch.arange(4).repeat(8)
    torch.manual_seed(0)
    worst = unsir.worst_noise(problem.net, example, labels)
    plain = example.mean() + example.std() * torch.randn_like(worst)
    losses = [functional.cross_entropy(problem.net(images), labels).item() for images in (worst, plain)]
    assert losses[0] > 1.5 * losses[1]


def test_duck_pulls_nothing_to_a_class_without_retain_images():
    centres = torch.tensor([[1.0, 0.0], [math.nan, math.nan], [-1.0, 0.0]])
    distance = duck.Targets(centres).distance(torch.tensor([[0.0, 3.0]]), torch.tensor([0]), place=0, fresh=True)
    assert float(distance) == pytest.approx(1.0)


def test_ssd_never_enlarges_a_weight():
    weights, full, forget = torch.ones(3), torch.tensor([1.0, 1.0, 0.0]), torch.tensor([2.0, 9.0, 0.0])
    ssd.dampen(weights, full, forget, alpha=1.0, factor=4.0)
    assert weights.tolist() == pytest.approx([1.0, 4 / 9, 1.0])


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


@pytest.fixture
def problem():
    return make_problem("mlp")  # six retain batches of 16, two forget batches of 16 and 8


@pytest.mark.parametrize(("published", "passes"), [(False, 6), (True, 8)])
def test_duck_takes_some_retain_batches_for_each_forget_batch(monkeypatch, problem, published, passes):
    steps, forwards = [], []
    set_all(monkeypatch, duck, RETAIN_BATCHES=3, EPOCHS=1, AS_PUBLISHED=published)
    monkeypatch.setattr(duck, "step", lambda optimizer, loss: steps.append(loss))
    monkeypatch.setattr(duck.Targets, "distance", lambda *_, **kept: forwards.append(kept) or torch.tensor(0.0))
    duck.unlearning(problem.net, *problem.data)
    assert len(steps) == 6
    assert len(forwards) == passes  # the program passes the batch once more that ends its loop


def test_duck_ends_its_second_phase_after_the_stated_batches(monkeypatch, problem):
    rates = []
    set_all(monkeypatch, duck, SECOND_PHASE=True, SECOND_BATCH=20, SECOND_BATCHES=2, EPOCHS=0)
    monkeypatch.setattr(duck, "set_lr", lambda optimizer, lr: rates.append(lr))
    duck.unlearning(problem.net, *problem.data)
    assert len(rates) == 2 * 2 * 2  # epochs, forget batches, retain batches
    assert rates[0] == duck.SECOND_LR
    assert rates[4] == pytest.approx(duck.SECOND_LR / 2)  # half of a cosine


@pytest.mark.parametrize(
    ("target", "forget", "validation", "epochs"),
    [(0.0, 0.5, 0.5, 1), (0.0, 0.6, 0.5, 3), (0.5, 0.5, 0.9, 3), (0.5, 0.4, 0.1, 1)],
)
def test_duck_ends_at_the_validation_accuracy_or_below_its_target(
    monkeypatch, problem, target, forget, validation, epochs
):
    done = []
    set_all(monkeypatch, duck, EPOCHS=3, TARGET=target)
    monkeypatch.setattr(duck, "one_epoch", lambda *arguments: done.append(arguments))
    monkeypatch.setattr(duck, "accuracy", lambda net, loader: forget if loader is problem.forget else validation)
    duck.unlearning(problem.net, *problem.data)
    assert len(done) == epochs


def test_rni_picks_its_layers_and_the_stated_share_of_them_for_noise(monkeypatch, problem):
    asked = []
    set_all(monkeypatch, rni, NOISED_EPOCHS=2, LAYERS=4, RATIO=0.7)
    monkeypatch.setattr(rni, "pick", lambda names, n: asked.append((len(names), n)) or names[:n])
    rni.erase(problem.net, *problem.data, {})
    n_tensors = len(list(problem.net.parameters()))
    assert asked == [(n_tensors, 4), (n_tensors, 4), (4, 2)]


def test_rni_takes_normalisation_by_type_unless_told_otherwise(monkeypatch):
    net = nn.ModuleDict({"bn": nn.BatchNorm2d(2), "down": nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))})
    parameters = dict(net.named_parameters())
    by_type = rni.normalisation(net, parameters)
    monkeypatch.setattr(rni, "BY_NAME", True)
    assert by_type - rni.normalisation(net, parameters) == {"down.1.weight", "down.1.bias"}


@pytest.mark.parametrize(("share", "n_retain"), [(1.0, 96), (0.5, 48), (0.001, 1)])
def test_ssd_reads_a_share_of_the_retain_set_and_the_forget_set_after_it(monkeypatch, problem, share, n_retain):
    monkeypatch.setattr(ssd, "SHARE", share)
    drawn = []
    monkeypatch.setattr(ssd.torch, "randperm", lambda n: drawn.append(n) or torch.arange(n))
    loader = ssd.everything(problem.retain, problem.forget)
    assert len(loader.dataset) == n_retain + 24
    assert drawn == ([] if share == 1.0 else [96])
    assert torch.equal(loader.dataset[n_retain]["image"], problem.forget.dataset[0]["image"])
    assert loader.batch_size == problem.retain.batch_size


class Single:
    """A loader of one batch of one image."""

    def __iter__(self):
        return iter([{"image": torch.zeros(1, 1, 8, 8), "label": torch.zeros(1, dtype=torch.int64)}])


def test_batches_of_one_are_left_out_where_batchnorm_trains():
    net = make_problem("resnet20").net
    assert len(list(common.batches(Single(), net.eval()))) == 1
    assert list(common.batches(Single(), net.train())) == []
    assert len(list(common.batches(Single(), make_problem("mlp").net.train()))) == 1
    with pytest.raises(ValueError, match="the set is too small"):
        next(common.cycle(Single(), net))


def test_mixed_leaves_out_a_last_batch_of_one():
    problem = make_problem("resnet20", sizes={"retain": 9, "forget": 6, "validation": 4}, batch_size=7)

    def sizes(net, **settings):
        return [len(labels) for _, labels, *_ in common.mixed(net, problem.retain, problem.forget, **settings)]

    assert sizes(problem.net.train()) == [7, 7]
    assert sizes(problem.net.eval()) == [7, 7, 1]
    assert sizes(problem.net.train(), share=0.9) == [7, 7]
    assert sizes(problem.net.train(), batch_size=13) == [13, 2]


def test_a_resized_loader_shuffles_as_the_first_one_does(problem):
    assert common.resized(problem.retain, 0) is problem.retain
    assert common.resized(problem.retain, 16) is problem.retain
    torch.manual_seed(0)
    changed = common.resized(problem.retain, 96)
    (first,), (second,) = list(changed), list(changed)
    assert len(first["label"]) == 96
    assert not torch.equal(first["image"], second["image"])
    ordered = common.resized(common.ordered(problem.retain), 96)
    assert torch.equal(next(iter(ordered))["image"], next(iter(ordered))["image"])
