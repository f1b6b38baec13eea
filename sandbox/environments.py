"""The interpreter and the libraries that a sandbox runs: this process's own, or a set of older ones.

A set is a lock file in `sandbox/locks`, NAME.lock, installed into an environment of its own. A competition names it,
for code that was written for the libraries of that time.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sandbox.errors import BackendUnavailable

LOCKS = Path(__file__).parent / "locks"
RECORD = "lethe-environment.json"  # written last: an environment without it is not complete
PYTHON = "3.11"  # of all sets so far: torch of 2023 has no wheels for a later one, the sandbox's code needs this one
ASK = """
import json, sys, sysconfig
from importlib.metadata import version
print(json.dumps({
    "prefix": sys.base_prefix, "site": sysconfig.get_path("platlib"), "is_shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
    "versions": {"python": sys.version.split()[0], **{name: version(name) for name in ("torch", "torchvision", "numpy")}},
}))
"""  # noqa: E501
ASKED_FOR = {
    **{
        name: name
        for name in (
            *("torch", "torchvision", "numpy", "scipy", "pandas", "matplotlib", "seaborn", "tqdm", "timm", "einops"),
            *("torchmetrics", "lightning", "transformers", "tokenizers", "accelerate", "peft", "safetensors"),
            *("sentencepiece", "albumentations", "numba", "networkx", "sympy", "joblib", "requests", "tabulate"),
            *("omegaconf", "wandb", "ipywidgets", "regex", "rich", "psutil", "cloudpickle"),
        )
    },
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "yaml": "pyyaml",
    "IPython": "ipython",
    "pytorch_lightning": "pytorch-lightning",
}


@dataclass(frozen=True)
class Environment:
    """An interpreter and the folder of its libraries.

    prefix: of the interpreter itself. is_shared: whether its library lies in a file of its own. versions: of python,
    torch, torchvision and numpy; empty for this process's own.
    """

    prefix: Path
    site: Path
    python: str
    is_shared: bool
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def in_words(self) -> str:
        """The versions in one line."""
        return ", ".join(f"{name} {version}" for name, version in self.versions)

    @property
    def inner_python(self) -> str:
        """The interpreter's path where its prefix is shown at /opt/python."""
        return f"/opt/python/bin/python{self.python}"


def own_environment() -> Environment:
    """Return this process's own. Raises BackendUnavailable without torch."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise BackendUnavailable("torch is missing: `pip install torch torchvision`")
    return Environment(
        prefix=Path(sys.base_prefix),
        site=Path(next(iter(spec.submodule_search_locations))).parent,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        is_shared=bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
    )


def find_environment(name: str, folder: Path | None) -> Environment:
    """Return the set called `name` in the folder of sets, or this process's own environment for "".

    Raises BackendUnavailable, with what to do, if it is not installed or not from today's lock file.
    """
    if not name:
        return own_environment()
    problem = missing_set(name, folder)
    if problem or folder is None:
        raise BackendUnavailable(problem)
    record = json.loads((folder / name / RECORD).read_text(encoding="utf-8"))
    return Environment(
        prefix=Path(record["prefix"]),
        site=Path(record["site"]),
        python=".".join(record["versions"]["python"].split(".")[:2]),
        is_shared=record["is_shared"],
        versions=tuple(record["versions"].items()),
    )


def known_sets() -> tuple[str, ...]:
    """Return the names of the sets that there are lock files for."""
    return tuple(sorted(path.stem for path in LOCKS.glob("*.lock")))


def missing_set(name: str, folder: Path | None) -> str:
    """Return why the set cannot be used here and what to do, "" if it can."""
    if name not in known_sets():
        return f"there is no set of libraries called {name!r}; there are {', '.join(known_sets())}"
    try:
        record = json.loads(((folder or Path("/nowhere")) / name / RECORD).read_text(encoding="utf-8"))
    except OSError:
        return f"the libraries {name!r} are not installed here: `lethe libraries install {name}`"
    if record["lock_sha256"] != lock_sha256(name):
        return f"the libraries {name!r} were installed from another lock file: `lethe libraries install {name}`"
    return ""


def lock_sha256(name: str) -> str:
    """Return the hash of a set's lock file."""
    return hashlib.sha256((LOCKS / f"{name}.lock").read_bytes()).hexdigest()


def find_python(given: str | None) -> str:
    """Return a Python that sets can be installed with. Raises BackendUnavailable with what was found and is needed."""
    if given is None and f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON:
        return sys.executable
    program = shutil.which(given or f"python{PYTHON}")
    if program is None:
        raise BackendUnavailable(f"{given or f'python{PYTHON}'} is not found; name a Python {PYTHON} with --python")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    if not said.startswith(f"Python {PYTHON}."):
        raise BackendUnavailable(f"{program} is {said or 'no Python'}; these libraries need Python {PYTHON}")
    return program


def install(name: str, folder: Path, *, python: str | None = None) -> Environment:
    """Install a set below the folder of sets, in place of what is there, and return it.

    Packages come from where pip gets them, each checked by its hash. Raises BackendUnavailable if that fails.
    """
    if name not in known_sets():
        raise BackendUnavailable(missing_set(name, folder))
    interpreter, target = find_python(python), folder / name
    os.umask(0o022)  # root drops to a user of its own, who must find the files
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    _call(interpreter, "-m", "venv", str(target))
    inner, lock = str(target / "bin" / "python"), str(LOCKS / f"{name}.lock")
    _call(inner, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--require-hashes", "-r", lock)
    said = subprocess.run([inner, "-c", ASK], capture_output=True, text=True, check=True).stdout
    record = {**json.loads(said), "lock_sha256": lock_sha256(name)}
    (target / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
    return find_environment(name, folder)


def _call(*command: str) -> None:
    if subprocess.run(command, check=False).returncode:
        raise BackendUnavailable(f"this failed, for the reason above: {' '.join(command)}")


@cache
def installed_libraries(site: Path) -> tuple[str, ...]:
    """Return the names of those in the folder of packages that runs see."""
    return tuple(name for module, name in ASKED_FOR.items() if (site / module / "__init__.py").is_file())
