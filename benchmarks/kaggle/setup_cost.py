"""What set-up costs: a run of a notebook that reads all pictures beside a plain call of its function.

2,100 pictures of 32 x 32. The best of several runs, since a neighbour on the machine only ever adds.

python -m benchmarks.kaggle.setup_cost [--runs 5]
"""

import argparse
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.kaggle.data import write_split
from benchmarks.kaggle.faithful import INPUT_FOLDER, POLICY
from benchmarks.kaggle.programs import programs
from sandbox.launcher import EntryPoint, Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from worker.evaluation.kaggle_layout import notebook_mounts

SIZES = {"retain": 1700, "forget": 200, "validation": 200}
READING = """
import glob, time
paths = sorted(glob.glob(f'{ROOT}/images/*/*.png'))
for name, read in {
    'from memory': torchvision.io.read_image,
    'decoded': lambda p: torchvision.io.decode_png(torchvision.io.read_file(p)),
}.items():
    began = time.perf_counter()
    for path in paths:
        read(path)
    print(f'[read] {len(paths)} pictures {name}: {time.perf_counter() - began:.3f} s')
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what a notebook's set-up costs in each run")
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    cells = dict(programs())["plain"]
    function = next(index for index, cell in enumerate(cells) if cell.startswith("def unlearning"))
    with tempfile.TemporaryDirectory(prefix="lethe-setup-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        split = write_split(folder / "split", SIZES)
        mounts = notebook_mounts(split, folder / "layout", key="k", input_folder=INPUT_FOLDER)
        stage = folder / "stage"
        _stage(stage / "notebook", cells)
        _stage(stage / "reading", [*cells[:function], READING, *cells[function:]])
        (stage / "plain").mkdir()
        plain = "\n".join([cells[0], "LR = 0.001", cells[function]])
        (stage / "plain" / "submission.py").write_text(plain, encoding="utf-8")
        spec = SandboxSpec(data_dir=split, stage_dir=stage, policy=replace(POLICY, mounts=mounts), production=False)
        program = EntryPoint(file="notebook.py", program="saves")
        with Launcher(spec).start() as sandbox:
            called = _best(sandbox, RunRequest(stage / "plain"), runs)
            whole = _best(sandbox, RunRequest(stage / "notebook", program), runs)
            log = sandbox.run(RunRequest(stage / "reading", program, kind="sample")).log.decode()
    print(f"a plain call of the function, 200 pictures: {called:.2f} s")
    print(f"the notebook until its first model: {whole:.2f} s, so its set-up takes {whole - called:.2f} s")
    print("\n".join(re.findall(r"\[read\] (.*)", log)))


def _best(sandbox: Sandbox, request: RunRequest, runs: int) -> float:
    return min(_taken(sandbox.run(replace(request, run=run))) for run in range(runs))


def _taken(result: RunResult) -> float:
    if result.weights is None:
        raise SystemExit(result.verdict.message + result.log.decode())
    return result.wall_time_s


def _stage(folder: Path, cells: list[str]) -> None:
    folder.mkdir(parents=True)
    for number, cell in enumerate(cells, start=1):
        (folder / f"cell-{number:02}.py").write_text(cell, encoding="utf-8")


if __name__ == "__main__":
    main()
