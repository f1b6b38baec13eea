"""How often a method does what it does: steps, batches, tensors and examples, at the ends of their ranges."""

import pytest
import torch

from lethe.methods import common, duck, rni, ssd
from tests.lethe.methods.tiny_data import make_problem


@pytest.fixture
def problem():
    return make_problem("mlp")  # six retain batches of 16, two forget batches of 16 and 8


@pytest.mark.parametrize(("published", "passes"), [(False, 6), (True, 8)])
def test_duck_takes_some_retain_batches_for_each_forget_batch(monkeypatch, problem, published, passes):
    steps, forwards = [], []
    monkeypatch.setattr(duck, "RETAIN_BATCHES", 3)
    monkeypatch.setattr(duck, "EPOCHS", 1)
    monkeypatch.setattr(duck, "AS_PUBLISHED", published)
    monkeypatch.setattr(duck, "step", lambda optimizer, loss: steps.append(loss))
    monkeypatch.setattr(duck.Targets, "distance", lambda *_, **kept: forwards.append(kept) or torch.tensor(0.0))
    duck.unlearning(problem.net, *problem.data)
    assert len(steps) == 6
    assert len(forwards) == passes  # the program passes the batch once more that ends its loop


def test_duck_ends_its_second_phase_after_the_stated_batches(monkeypatch, problem):
    rates = []
    monkeypatch.setattr(duck, "SECOND_PHASE", True)
    monkeypatch.setattr(duck, "SECOND_BATCH", 20)
    monkeypatch.setattr(duck, "SECOND_BATCHES", 2)
    monkeypatch.setattr(duck, "EPOCHS", 0)
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
    monkeypatch.setattr(duck, "EPOCHS", 3)
    monkeypatch.setattr(duck, "TARGET", target)
    monkeypatch.setattr(duck, "one_epoch", lambda *arguments: done.append(arguments))
    monkeypatch.setattr(duck, "accuracy", lambda net, loader: forget if loader is problem.forget else validation)
    duck.unlearning(problem.net, *problem.data)
    assert len(done) == epochs


def test_rni_picks_its_layers_and_the_stated_share_of_them_for_noise(monkeypatch, problem):
    asked = []
    monkeypatch.setattr(rni, "NOISED_EPOCHS", 2)
    monkeypatch.setattr(rni, "LAYERS", 4)
    monkeypatch.setattr(rni, "RATIO", 0.7)
    monkeypatch.setattr(rni, "pick", lambda names, n: asked.append((len(names), n)) or names[:n])
    rni.erase(problem.net, *problem.data, {})
    n_tensors = len(list(problem.net.parameters()))
    assert asked == [(n_tensors, 4), (n_tensors, 4), (4, 2)]


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
