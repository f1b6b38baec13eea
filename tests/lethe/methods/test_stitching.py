"""The erase phase of one method with the repair phase of another."""

import importlib.util
import io
import sys
import zipfile

import pytest
import torch

from lethe.errors import InvalidInput
from lethe.methods.catalogue import all_methods
from lethe.methods.rendering import stitch
from lethe.submission.package import load_package
from tests.lethe.methods.tiny_data import changed, make_problem

ERASING = [info.id for info in all_methods() if "erase" in info.phases]
REPAIRING = [info.id for info in all_methods() if "repair" in info.phases]
SIZES = {"retain": 24, "forget": 8, "validation": 8}


@pytest.fixture
def load(tmp_path, monkeypatch):
    def module(stitched):
        for name, text in stitched.files.items():
            (tmp_path / name).write_text(text)
            monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))
        spec = importlib.util.spec_from_file_location("stitched", tmp_path / "unlearning.py")
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return module


def test_at_least_six_methods_can_be_stitched():
    assert len(set(ERASING) & set(REPAIRING)) >= 6


@pytest.mark.parametrize("repair", REPAIRING)
@pytest.mark.parametrize("erase", ["fcs", "msg", "prmq", "gradient_ascent"])
def test_stitched_method_runs_and_leaves_no_hook(load, erase, repair):
    problem = make_problem("small_cnn", sizes=SIZES, batch_size=8)
    torch.manual_seed(0)
    load(stitch(erase, repair)).unlearning(problem.net, *problem.data)
    assert changed(problem)
    assert not any(parameter._backward_hooks for parameter in problem.net.parameters())
    assert not problem.net.training


def test_stitching_keeps_the_first_schedule_and_the_second_objective(load, monkeypatch):
    module = load(stitch("fcs", "cfw"))
    calls = []
    for part, names in ((module.first, ("erase0", "erase", "repair")), (module.second, ("erase", "repair"))):
        for name in names:
            record = (part.__name__, name)
            monkeypatch.setattr(part, name, lambda *given, record=record: calls.append((*record, given[5:])))
    problem = make_problem("mlp", sizes=SIZES)
    module.unlearning(problem.net, *problem.data)
    once = [("erase_fcs", "erase", ()), ("repair_cfw", "repair", (1, 7e-4))]
    assert calls == [("erase_fcs", "erase0", ()), *once * 8]


def test_matched_learning_rate_makes_the_mean_effect_equal(load, monkeypatch):
    module, given = load(stitch("msg", "cfw", match_lr=True)), []
    monkeypatch.setattr(module.second, "repair", lambda *arguments: given.append(arguments[-2:]))
    problem = make_problem("small_cnn", sizes=SIZES)
    module.unlearning(problem.net, *problem.data)
    epochs, lr = given[0]
    assert epochs == module.first.REPAIR_EPOCHS
    scale = module.second.loss_scale(problem.net, problem.retain)
    assert lr * scale == pytest.approx(module.first.REPAIR_LR)


def test_repair_teacher_is_the_network_before_erasing(load, monkeypatch):
    module, seen = load(stitch("ct", "prmq")), []
    monkeypatch.setattr(module.second, "repair", lambda *given: seen.append(given[4]["teacher"]))
    problem = make_problem("small_cnn", sizes=SIZES)
    module.unlearning(problem.net, *problem.data)
    assert all(torch.equal(tensor, problem.before[name]) for name, tensor in seen[0].state_dict().items())


def test_fractional_epochs_are_rounded_for_integer_repairs(load, monkeypatch):
    module, given = load(stitch("prmq", "finetune")), []
    monkeypatch.setattr(module.second, "repair", lambda *arguments: given.append(arguments[5]))
    problem = make_problem("mlp", sizes=SIZES)
    module.unlearning(problem.net, *problem.data)
    assert given == [3]


def test_methods_without_phases_run_one_after_the_other(load, monkeypatch):
    stitched = stitch("ssd", "scrub")
    module, calls = load(stitched), []
    for part in (module.first, module.second):
        monkeypatch.setattr(part, "unlearning", lambda *given, name=part.__name__: calls.append(name))
    problem = make_problem("mlp", sizes=SIZES)
    module.unlearning(problem.net, *problem.data)
    assert (stitched.kind, calls) == ("sequence", ["erase_ssd", "repair_scrub"])


@pytest.mark.parametrize(
    ("erase", "repair", "match_lr", "message"),
    [
        ("finetune", "msg", False, "finetune has no phase that erases"),
        ("msg", "gradient_ascent", False, "gradient_ascent has no phase that repairs"),
        ("gradient_ascent", "cfw", True, "gradient_ascent repairs nothing"),
        ("ssd", "cfw", True, "no learning rate can be matched"),
    ],
)
def test_stitching_refuses_what_has_no_such_phase(erase, repair, match_lr, message):
    with pytest.raises(InvalidInput, match=message):
        stitch(erase, repair, match_lr=match_lr)


def test_stitched_archive_is_a_submission_of_equal_bytes():
    archive = stitch("msg", "cfw").as_zip()
    assert archive == stitch("msg", "cfw").as_zip()
    package = load_package(archive, "stitched.zip")
    assert (package.entry_point.file, package.entry_point.style) == ("unlearning.py", "dict")
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert sorted(opened.namelist()) == ["erase_msg.py", "repair_cfw.py", "unlearning.py"]
