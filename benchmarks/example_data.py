"""Writes the data of examples/benchmarks and examples/competitions that cannot be committed.

python -m benchmarks.example_data writers mnist.npz mnist_writers.npz data/writers     of writers-tuned.toml
python -m benchmarks.example_data classes cifar100.zip data/classes                    of classes-tuned.toml
python -m benchmarks.example_data classes cifar100.zip data/classes16 --arrays 16      of forget-sets.toml
python -m benchmarks.example_data memorisation examples/benchmarks/forget-sets.toml    difficulty.npy beside its arrays
python -m benchmarks.example_data llama tofu/llama tofu/retain_perturbed.json          of tofu-folder.toml

mnist.npz: `x_train`, `y_train`, `x_test`, `y_test`. mnist_writers.npz: `train_writer` [60000], of QMNIST's labels
(Yadav & Bottou 2019, arXiv 1905.10498), in MNIST's order. cifar100.zip: the first pictures of each class of CIFAR-100
(Krizhevsky 2009) in their order, 200 of its training and 50 of its test set, below each other in one picture of 32
columns, `train/CCC.webp` and `test/CCC.webp`; the classes' names in `classes.json`.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from PIL import Image

from lethe.benchmark.plan import read_plan
from lethe.data.datasets.registry import open_dataset
from lethe.networks.builders import to_inputs
from lethe.preparation.image_task import describe_network
from lethe.training.trainer import TrainingJob

WRITERS, PICTURES, TESTS = 100, 24, 1000  # the tests are MNIST's first, which others wrote
SIDE = 32
CLASSES = ("apple", "baby", "bear", "beaver", "bed", "bicycle", "cloud", "fox", "hamster", "orchid")
Row = tuple[str, NDArray[np.uint8], int, str, int]  # name, picture, label, person, whether it is of the test set
SPECIAL = ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
CHAT = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
app = typer.Typer(help=__doc__)


@app.command()
def writers(mnist: Path, writers: Path, folder: Path) -> None:
    """MNIST's digits with the persons who wrote them: a folder of pictures with images.csv."""
    digits, writer = dict(np.load(mnist)), np.load(writers)["train_writer"]
    often = [person for person in np.unique(writer) if np.count_nonzero(writer == person) >= PICTURES][:WRITERS]
    drawn = [("train", index, str(person)) for person in often for index in np.flatnonzero(writer == person)[:PICTURES]]
    drawn += [("test", index, f"test-{index}") for index in range(TESTS)]
    _write(
        folder,
        (
            (f"{part}-{i}", digits[f"x_{part}"][i], int(digits[f"y_{part}"][i]), person, int(part == "test"))
            for part, i, person in drawn
        ),
    )


@app.command()
def classes(cifar: Path, folder: Path, arrays: int = 0) -> None:
    """Pictures of ten classes of CIFAR-100: a folder, or with --arrays SIDE files of the dataset `numpy`."""
    if not arrays:
        _write(folder, _cifar_rows(cifar))
        return
    found = [
        (np.asarray(Image.fromarray(picture).resize((arrays, arrays))), label, bool(is_test))
        for _, picture, label, _, is_test in _cifar_rows(cifar)
    ]
    folder.mkdir(parents=True)
    for name, column in zip(("images", "labels", "is_test"), zip(*found, strict=True), strict=True):
        np.save(folder / f"{name}.npy", np.array(column))


def _cifar_rows(cifar: Path) -> Iterable[Row]:
    """Yield the pictures of the ten classes; the label is the place in CLASSES."""
    with zipfile.ZipFile(cifar) as archive:
        names = json.loads(archive.read("classes.json"))
        for part in ("train", "test"):
            for label, name in enumerate(CLASSES):
                strip = Image.open(io.BytesIO(archive.read(f"{part}/{names.index(name):03d}.webp"))).convert("RGB")
                for index, picture in enumerate(np.asarray(strip).reshape(-1, SIDE, SIDE, 3)):
                    yield f"{part}-{name}-{index}", picture, label, "", int(part == "test")


def _write(folder: Path, pictures: Iterable[Row]) -> None:
    (folder / "images").mkdir(parents=True)
    with (folder / "images.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "person", "test"])
        for name, picture, *rest in pictures:
            Image.fromarray(picture).save(folder / f"images/{name}.png")
            table.writerow([f"images/{name}.png", *rest])


@app.command()
def memorisation(file: Path, models: int = 200) -> None:
    """How far models memorise each image (Feldman and Zhang 2020), by the network and recipe of the first cell.

    Each model learns as many images as the cell has, drawn at random. An image's memorisation is the mean confidence in
    its class of the models that were trained on it, less that of the others.
    """
    competition = read_plan(file).cells[0].competition
    dataset = open_dataset(competition.dataset)
    network = describe_network(competition, dataset)
    pool = np.arange(len(dataset)) if dataset.is_test is None else np.flatnonzero(~dataset.is_test)
    images, labels = torch.from_numpy(np.array(dataset.images[pool])), torch.from_numpy(dataset.labels[pool])
    inputs = to_inputs(images, network)
    sums, counts = np.zeros((2, len(pool))), np.zeros((2, len(pool)))
    for seed in range(models):
        drawn = np.random.default_rng(seed).permutation(len(pool))[: competition.splits.train_size]
        training = TrainingJob.on_device(
            network, competition.training, images[drawn], labels[drawn], device="cpu"
        ).start(seed)
        for _ in range(competition.training.epochs):
            training.run_epoch()
        with torch.inference_mode():
            sure = training.net.eval()(inputs).softmax(1)[torch.arange(len(pool)), labels].numpy()
        is_in = np.isin(np.arange(len(pool)), drawn)
        for side in (0, 1):
            sums[side] += np.where(is_in == side, sure, 0.0)
            counts[side] += is_in == side
    difficulty = np.zeros(len(dataset))
    difficulty[pool] = sums[1] / counts[1] - sums[0] / counts[0]
    np.save(Path(competition.dataset.options["root"]) / "difficulty.npy", difficulty)


@app.command()
def llama(folder: Path, texts: list[Path], width: int = 96, layers: int = 2) -> None:
    """A small Llama 3 as `save_pretrained` writes it, random weights, a tokenizer of the texts, a chat template.

    Shared keys and values (4 heads, 2 of keys), an output layer of its own, Llama 3's scaling of rotations, bfloat16.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 (an extra)
    from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast  # noqa: PLC0415 (an extra)

    rows = [json.loads(line) for path in texts for line in path.read_text("utf-8").splitlines()]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1024, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator([row[name] for row in rows for name in ("question", "answer")], trainer)
    untyped: Any = PreTrainedTokenizerFast
    tokenizer = untyped(tokenizer_object=trained, bos_token=SPECIAL[0], eos_token=SPECIAL[1])
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    rotations = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0}
    rotations |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 128}
    sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 344 * width // 128, "num_hidden_layers": layers}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    tokens: dict[str, Any] = {"vocab_size": trained.get_vocab_size(), "bos_token_id": 0, "eos_token_id": 1}
    config = LlamaConfig(**sizes, **heads, **tokens, rope_parameters=rotations, tie_word_embeddings=False)
    torch.manual_seed(0)
    auto: Any = AutoModelForCausalLM
    auto.from_config(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    app()
