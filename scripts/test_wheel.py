"""Build the wheel, install it with each extra into an environment of its own, and run what the documents promise.

`python -m scripts.test_wheel [--extra NAME ...] [--python PYTHON ...]`. The environments hold nothing that the wheel
does not ask for, so a package that only the checkout has is noticed. uv is needed: it is in the environment that `make
install` makes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPETITION = ROOT / "examples" / "competitions" / "digits.toml"
PYTHON_FIRST = (
    "import lethe, numpy as np; r = np.random.default_rng(0).normal(size=(2, 16, 5)); "
    "e = lethe.evaluate(r[0], r[1]); print(e, e.to_json(), e._repr_html_(), lethe.score(r[0], r[1]))"
)
# One metric: of all, each environment would compile the loops again.
FRAME = "import lethe, numpy as np; r = np.random.randn(2, 16, 5); print(lethe.evaluate(*r, metrics='klom').to_frame())"
ARRAYS = ("python", "-c", "import numpy as np; [np.savez(n, confidences=np.random.randn(16, 5)) for n in ('U', 'R')]")
# What must work with each extra, and with none: commands, run one after the other in an empty folder.
BASE = (
    ("lethe", "--version"),
    ("lethe", "metrics"),
    ("lethe", "methods", "list"),
    ("lethe", "methods", "show", "scrub"),
    ARRAYS,
    ("lethe", "score", "--unlearned", "U.npz", "--retrained", "R.npz", "--json"),
    ("lethe", "evaluate", "--unlearned", "U.npz", "--retrained", "R.npz", "--json"),
    ("python", "-W", "error", "-c", PYTHON_FIRST),
)
TORCH = (
    ("lethe", "competition", "validate", "small.toml"),
    ("lethe", "prepare", "small.toml", "--out", "split"),
    ("lethe", "methods", "run", "finetune", "--split", "split"),
    ("lethe", "benchmark", "run", "small-benchmark.toml", "--out", "results"),
)
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "": BASE,
    "torch": (*BASE, *TORCH),
    "hf": (("python", "-c", "import lethe.huggingface.task"),),
    "harness": (("python", "-c", "import lethe.huggingface.harness_task, lm_eval"),),
    "plots": (ARRAYS, ("lethe", "evaluate", "--unlearned", "U.npz", "--retrained", "R.npz", "--plot", "metrics.png")),
    "frames": (("python", "-c", FRAME),),
    "parquet": (("python", "-c", "import pyarrow, pandas"),),
    "networks": (("python", "-c", "import timm"),),
    "text": (("python", "-c", "import tokenizers, sentencepiece"),),
    "tune": (("python", "-c", "import optuna"),),
    "keyring": (("python", "-c", "import keyring"),),
}
BENCHMARK = """slug = "small"
n_models = 4
methods = ["original", "finetune"]
metrics = ["f", "accuracy_gap"]
[[cell]]
name = "digits mlp"
competition = "small.toml"
splits = { train_size = 200, test_fraction = 0.4, forget = { by = "random", fraction = 0.1 } }
network = { name = "mlp", hidden = [16] }
training = { epochs = 25, learning_rate = 0.05 }
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extra", action="append", choices=["none", *_extras(), "all"], help="only these")
    parser.add_argument("--python", action="append", help="interpreters; by default the running one")
    chosen = parser.parse_args()
    extras = ["" if name == "none" else name for name in chosen.extra or ["none", *_extras(), "all"]]
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _wheel(Path(scratch))
        for python in chosen.python or [sys.executable]:
            for extra in extras:
                _test(wheel, python, extra, Path(scratch) / f"{Path(python).name}-{extra or 'base'}")


def _extras() -> list[str]:
    found = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    missing = sorted(set(found) - COMMANDS.keys())
    if missing:
        raise SystemExit(f"no command shows that the extras {missing} work: name one in {Path(__file__).name}")
    return found


def _wheel(scratch: Path) -> Path:
    source, out = scratch / "source", scratch / "wheel"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "lethe", source / "lethe", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source], check=True
    )
    return next(out.glob("*.whl"))


def _test(wheel: Path, python: str, extra: str, folder: Path) -> None:
    names = _extras() if extra == "all" else [extra] if extra else []
    environment, work = folder / "environment", folder / "work"
    work.mkdir(parents=True)
    _uv("venv", "-q", "--python", python, environment)
    wanted = f"{wheel}[{','.join(names)}]" if names else str(wheel)
    _uv("pip", "install", "-q", "--python", environment / "bin" / "python", "-c", _constraints(folder), wanted)
    (work / "small.toml").write_text(COMPETITION.read_text().replace("n_models = 512", "n_models = 4"))
    (work / "small-benchmark.toml").write_text(BENCHMARK)
    commands = [command for name in names or [""] for command in COMMANDS[name]]
    for command in dict.fromkeys(commands):
        _run(environment, work, command)
    size = subprocess.run(["du", "-smD", environment], check=True, capture_output=True, text=True).stdout.split()[0]
    print(
        f"{Path(python).name}, extra {extra or 'none'}: {len(dict.fromkeys(commands))} commands, {size} MB", flush=True
    )
    shutil.rmtree(folder)


def _run(environment: Path, work: Path, command: tuple[str, ...]) -> None:
    program, *arguments = command
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(work), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [environment / "bin" / program, *arguments],
        cwd=work,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {found.returncode}:\n{found.stdout[-2000:]}\n{found.stderr[-4000:]}"
        )


def _uv(*words: str | Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{ROOT / 'build/lock/bin'}:{os.environ['PATH']}")
    if uv is None:
        raise SystemExit("uv is not installed: `make install` brings it")
    subprocess.run([uv, *map(str, words)], check=True)


def _constraints(folder: Path) -> Path:
    """Return the locked versions without their hashes, so that what is tested is what was tried."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.removesuffix("\\").strip() for line in lines if line and line[0].isalnum()]
    path = folder / "constraints.txt"
    path.write_text("\n".join(pins) + "\n")
    return path


if __name__ == "__main__":
    main()
