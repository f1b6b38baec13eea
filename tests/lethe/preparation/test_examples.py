"""The example competitions: every file is intact, and those without a download can be cut."""

from pathlib import Path

import pytest

from lethe.competition.file import read_competition_file
from lethe.data.datasets.registry import adapters, open_dataset
from lethe.data.errors import InvalidDataset
from lethe.data.forget_sets import cut_dataset
from lethe.evaluation.manifest import verify_split
from lethe.evaluation.model_outputs import read_outputs
from lethe.networks.builders import build
from lethe.preparation.prepare import prepare_split
from lethe.preparation.task_kinds import task_preparation

FOLDER = Path(__file__).parents[3] / "examples" / "competitions"
FILES = sorted(FOLDER.glob("*.toml"))
SHAPES = {  # what the adapters of data that is not here would give
    "casia-surf": ([3, 32, 32], 10),
    "celeba": ([3, 128, 128], 8),
    "cifar10": ([3, 32, 32], 10),
    "cifar20": ([3, 32, 32], 20),
    "cifar100": ([3, 32, 32], 100),
    "fashion-mnist": ([1, 28, 28], 10),
    "femnist": ([1, 28, 28], 62),
    "mnist": ([1, 28, 28], 10),
    "utkface": ([3, 224, 224], 5),
    "digits": ([1, 8, 8], 10),
    "faces": ([3, 32, 32], 10),
    "table": ([30, 1, 1], 2),
}


def test_there_are_examples() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_names_itself_and_builds_its_network(path: Path) -> None:
    competition = read_competition_file(path)
    assert competition.slug == path.stem
    network = competition.network
    if competition.task.kind == "causal-lm":
        if "pretrained" in network.options:
            return  # its sizes come with its file
        given = {"task": competition.task.kind, "name": network.name, "options": network.options}
        build(given | {"vocabulary_size": competition.dataset.options["vocabulary"]})
        return
    assert competition.dataset.name in adapters()
    if competition.network.name == "tiny_vit":
        pytest.importorskip("timm")
    shape, n_classes = SHAPES[competition.dataset.name]
    build({"name": network.name, "options": network.options, "input_shape": shape, "n_classes": n_classes})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_without_its_data_says_what_to_put_there(path: Path, tmp_path: Path) -> None:
    competition = read_competition_file(path)
    if "root" not in competition.dataset.options:
        pytest.skip("needs no download")
    options = competition.dataset.options | {"root": str(tmp_path)}
    dataset = competition.dataset.model_copy(update={"options": options})
    with pytest.raises(InvalidDataset, match="Put there"):
        task_preparation(competition.task.kind).open_dataset(competition.model_copy(update={"dataset": dataset}))


@pytest.mark.parametrize("name", ["digits", "confusion", "faces", "breast-cancer"])
def test_examples_without_a_download_can_be_cut(name: str) -> None:
    example = read_competition_file(FOLDER / f"{name}.toml")
    dataset = open_dataset(example.dataset)
    for seed in range(20):  # a secret one is drawn for each competition
        competition = example.model_copy(update={"splits": example.splits.model_copy(update={"seed": seed})})
        public, private = (cut_dataset(dataset, competition, visibility) for visibility in ("public", "private"))
        assert 0 < len(public.forget) < 0.2 * len(public.train)
        assert not set(public.forget) & set(private.forget)


def test_digits_are_cut_as_the_demo_says() -> None:
    competition = read_competition_file(FOLDER / "digits.toml")
    cut = cut_dataset(open_dataset(competition.dataset), competition, "public")
    assert (len(cut.retain), len(cut.forget), len(cut.validation), len(cut.test)) == (700, 100, 180, 719)
    assert competition.n_models == 512


def test_confused_digits_are_learnt_by_originals_only(tmp_path: Path) -> None:
    whole = read_competition_file(FOLDER / "confusion.toml")
    quick = whole.training.model_copy(update={"epochs": 5})
    competition = whole.model_copy(update={"n_models": 4, "training": quick})
    prepare_split(competition, "public", tmp_path)
    assert verify_split(tmp_path) == []
    outputs = read_outputs(tmp_path)
    assert (outputs.confidences > 0).mean() < 0.3  # the true class wins over the swapped label
