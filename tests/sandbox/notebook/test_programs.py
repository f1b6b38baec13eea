"""Programs that every run runs by itself: until their first model, or to the end and then their function."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file

from tests.sandbox.notebook.conftest import Notebooks
from tests.support.notebooks import FUNCTION, LOOP, SCRIPT, SEEDS

pytestmark = pytest.mark.slow


def bias(weights: bytes | None, split: Path) -> list[float]:
    """Return by how much the last layer's bias was changed."""
    assert weights is not None
    return (load(weights)["3.bias"] - load_file(split / "original_model.safetensors")["3.bias"]).tolist()


def test_a_program_ends_with_its_first_model(notebooks: Notebooks) -> None:
    ended = notebooks.program(LOOP, "raise ValueError('never reached')")
    assert ended.result.weights is not None, ended.log
    assert ended.log.count("model") == 1


def test_no_exception_handler_can_go_on_after_the_first_model(notebooks: Notebooks) -> None:
    ended = notebooks.program(
        "try:\n    save_all = 1" + LOOP.replace("\n", "\n    ") + "\nfinally:\n    print('went on')"
    )
    assert ended.result.weights is not None
    assert "went on" not in ended.log


UNMIXED, MIXED = ((1, False), (2, False)), ((1, True), (1, True), (2, True))  # the run's seed, whether it is mixed in


def test_the_programs_own_seeds_are_mixed_with_the_runs(notebooks: Notebooks) -> None:
    seeded = "torch.manual_seed(1)" + LOOP
    plain, other = (notebooks.program(seeded, seed=s, mixes=mixes).result.weights for s, mixes in UNMIXED)
    first, again, second = (notebooks.program(seeded, seed=s, mixes=mixes).result.weights for s, mixes in MIXED)
    assert plain is not None
    assert plain == other
    assert first == again
    assert len({plain, first, second}) == 3


def test_without_a_seed_of_its_own_a_program_draws_by_the_runs(notebooks: Notebooks) -> None:
    first, again, second = (notebooks.program(LOOP, seed=seed).result.weights for seed in (1, 1, 2))
    assert first == again != second


CHILD_LOOP = "for i in range(3):\n    !python script.py $i"


def test_the_seeds_of_python_children_are_mixed_with_the_run(notebooks: Notebooks, split: Path) -> None:
    cells = (SCRIPT.format(seeds=SEEDS), CHILD_LOOP)
    seeds = ((2, False), (1, True), (2, True))  # the run's, whether it is mixed in
    plain, *mixed = (notebooks.program(*cells, seed=seed, mixes=mixes).result for seed, mixes in seeds)
    assert plain.weights is not None, plain.log
    assert len({plain.weights, *(result.weights for result in mixed)}) == 3
    drawn = torch.randn(10, generator=torch.Generator().manual_seed(1)) + random.Random(2).random()
    expected = drawn + np.random.RandomState(3).rand()
    assert bias(plain.weights, split) == pytest.approx(expected.tolist(), abs=1e-6)


def test_python_children_without_seeds_draw_by_the_runs(notebooks: Notebooks) -> None:
    cells = (SCRIPT.format(seeds=""), CHILD_LOOP)
    first, again, second = (notebooks.program(*cells, seed=seed).result.weights for seed in (1, 1, 2))
    assert first == again != second


def test_python_children_draw_apart_and_load_nothing(notebooks: Notebooks) -> None:
    ended = notebooks.program(
        """
        %%writefile draw.py
        import random, sys
        assert 'torch' not in sys.modules and 'numpy' not in sys.modules
        print('drawn', random.random())
        """,
        "!python draw.py\n!python draw.py\n!python -c 'import random; print(\"drawn\", random.random())'" + LOOP,
    )
    drawn = [line for line in ended.log.splitlines() if line.startswith("drawn")]
    assert len(set(drawn)) == 3, ended.log


@pytest.mark.parametrize(
    "saving",
    [
        "torch.save(original(), '/kaggle/tmp/part'); os.rename('/kaggle/tmp/part', PATH)",
        "os.system(f'cp {FOLDER}/original_model.pth {PATH}')",
        "with open(PATH, 'wb') as file: torch.save(original(), file)",
    ],
)
def test_however_the_model_is_written_it_is_the_runs(notebooks: Notebooks, split: Path, saving: str) -> None:
    ended = notebooks.program(
        "PATH = '/kaggle/tmp/unlearned_checkpoint_0.pth'\n" + saving, "import time; time.sleep(200)"
    )
    assert bias(ended.result.weights, split) == [0.0] * 10, ended.log
    assert ended.result.verdict.outcome == "weights", "it was not ended for being idle"
    assert ended.result.wall_time_s < 200


TAKEN = {  # program -> by how much the bias of the model that counts was changed
    "no temporary model": (
        3.0,
        """
        state = original()
        for epoch in range(3):
            torch.save(state, f'/kaggle/tmp/unlearning_epoch_{epoch}.pth')
            state['3.bias'] += 1
        torch.save(state, '/kaggle/tmp/unlearned_checkpoint_0.pth')
        """,
    ),
    "the first of a series of another name": (
        1.0,
        """
        torch.save(original(), '/kaggle/tmp/start.pth')
        for i in range(512):
            state = original()
            state['3.bias'] += i + 1
            torch.save(state, f'/kaggle/tmp/model_{i}.pth')
        """,
    ),
    "what the archive of a program that ends holds": (
        4.0,
        """
        import zipfile
        state = original()
        state['3.bias'] += 4
        torch.save(original(), 'a.pth')
        torch.save(state, 'b.pth')
        with zipfile.ZipFile('submission.zip', 'w') as archive:
            archive.write('b.pth')
        """,
    ),
    "what the archive alone holds": (
        2.0,
        """
        import io, zipfile
        with zipfile.ZipFile('submission.zip', 'w') as archive:
            for i in range(3):
                state = original()
                state['3.bias'] += i + 2
                content = io.BytesIO()
                torch.save(state, content)
                archive.writestr(f'unlearned_checkpoint_{i}.pth', content.getvalue())
        """,
    ),
    "the last epoch of a run that saves no more": (
        3.0,
        """
        import copy
        first = network(); first.load_state_dict(original())
        for i in range(512):
            net = copy.deepcopy(first)
            for e in range(3):
                net[3].bias.data += 1
                torch.save(net.state_dict(), f'/kaggle/tmp/{i}_epoch_{e}.pth')
        """,
    ),
}


@pytest.mark.parametrize("model", TAKEN)
def test_model_that_counts_is_taken(notebooks: Notebooks, split: Path, model: str) -> None:
    by, program = TAKEN[model]
    ended = notebooks.program(program)
    assert bias(ended.result.weights, split) == pytest.approx([by] * 10), ended.log


def test_a_program_without_a_model_calls_its_function(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.program(FUNCTION, "torch.save(original(), 'kept.pth')")
    assert bias(ended.result.weights, split) == pytest.approx([1.0] * 10), ended.log


def test_a_program_without_model_and_function_says_so(notebooks: Notebooks) -> None:
    assert notebooks.program("x = 1").error_class == "no-model"


def test_an_error_of_a_program_that_saves_ends_it(notebooks: Notebooks) -> None:
    ended = notebooks.program("open('/kaggle/input/missing.csv')", LOOP)
    verdict = ended.result.verdict
    assert (verdict.error_class, verdict.exception_type) == ("exception", "FileNotFoundError")
    assert (verdict.file, verdict.line) == ("cell-02.py", 1)


@pytest.mark.parametrize(
    "statement",
    [
        "import urllib.request; urllib.request.urlretrieve('https://example.org/x', 'x')",
        "raise RuntimeError('this needs CUDA')",
        "from kaggle_secrets import UserSecretsClient",
        "try:\n    open('missing')\nexcept OSError as error:\n    raise ValueError('no data') from error",
    ],
)
def test_what_cannot_run_here_is_skipped_before_a_function(notebooks: Notebooks, split: Path, statement: str) -> None:
    ended = notebooks.program(statement, FUNCTION, program="defines")
    assert bias(ended.result.weights, split) == pytest.approx([1.0] * 10), ended.log
    assert "skipped: cell-02.py, line 1 failed with" in ended.log


@pytest.mark.parametrize(
    ("statements", "name"),
    [
        ("table = open('missing.csv').read()\nsize = len(table)", "size"),
        ("size = [1]\nsize.append(open('missing.csv').read())", "size"),
        ("size = {}\ndef fill(d): d['a'] = open('missing.csv')\nfill(size)", "size"),
        ("size = 1\nif True:\n    size = open('missing.csv')", "size"),
    ],
)
def test_a_function_that_reads_what_was_skipped_is_told(notebooks: Notebooks, statements: str, name: str) -> None:
    reads = FUNCTION.replace("with torch", f"print({name})\n    with torch")
    verdict = notebooks.program(statements, reads, program="defines").result.verdict
    assert verdict.error_class == "skipped-name"
    assert repr(name) in verdict.message
    assert "cell-02.py, line" in verdict.message
    assert "FileNotFoundError: [Errno 2]" in verdict.message
    hidden = notebooks.program(statements, reads, program="defines", kind="hidden").result.verdict
    assert "missing.csv" not in hidden.message


def test_another_error_before_a_function_is_the_programs(notebooks: Notebooks) -> None:
    assert notebooks.program("1 / 0", FUNCTION, program="defines").result.verdict.exception_type == "ZeroDivisionError"


def test_a_model_after_a_skipped_statement_is_refused(notebooks: Notebooks) -> None:
    ended = notebooks.program("lr = open('lr.txt').read()", LOOP, program="defines")
    assert ended.error_class == "model-after-skip"
    assert "cell-02.py, line 1" in ended.result.verdict.message


@pytest.mark.parametrize("returned", ["(net, 1.0)", "[0.1]"])
def test_a_returned_value_that_is_not_understood_is_refused_on_the_sample(notebooks: Notebooks, returned: str) -> None:
    cell = f"def unlearning(net, r, f, v):\n    return {returned}"
    assert notebooks.program(cell, program="defines").error_class == "wrong-return"
    assert notebooks.program(cell, program="defines", kind="hidden").result.weights is not None


FOUND = {  # what a program relies on
    "matplotlib and IPython": """
    %matplotlib inline
    import matplotlib.pyplot as plt
    import IPython
    from IPython.display import HTML, display, clear_output
    from tqdm.auto import trange
    from tqdm.notebook import tqdm
    figure, axes = plt.subplots(1, 2)
    axes[0].plot([1, 2])
    plt.savefig('figure.png')
    plt.show()
    clear_output()
    display(HTML('<b>shown</b>'))
    assert IPython.get_ipython() is get_ipython()
    assert sum(tqdm(range(3))) == sum(trange(3)) == 3
    %time x = 1
    """,
    "pictures by every reader": """
    import numpy as np, pandas as pd, shutil, torchvision
    from PIL import Image
    from pathlib import Path
    table = pd.read_csv(f'{FOLDER}/retain.csv')
    for a, b in table['image_id'].str.split('-'):
        path = Path(f'{FOLDER}/images/{a}/{b}.png')
        shutil.copy(path, 'copy.png')
        for mode in torchvision.io.ImageReadMode:
            served, real = (torchvision.io.read_image(str(p), mode) for p in (path, 'copy.png'))
            assert (served.dtype, served.stride()) == (real.dtype, real.stride()) and torch.equal(served, real)
        served, real = Image.open(path), Image.open('copy.png')
        assert (served.mode, served.size, served.format) == (real.mode, real.size, real.format)
        assert np.array_equal(np.asarray(served.convert('RGB')), np.asarray(real.convert('RGB')))
        served.load()[0, 0]
        with Image.open(open(path, 'rb')) as opened: opened.verify()
    """,
    "usual libraries without a network": """
    import cv2, einops, ipywidgets, omegaconf, torchmetrics, wandb
    ipywidgets.IntSlider()
    run = wandb.init(project='x')
    wandb.log({'loss': 1})
    run.finish()
    """,
}


@pytest.mark.parametrize("what", FOUND)
def test_what_programs_rely_on_is_there(notebooks: Notebooks, what: str) -> None:
    ended = notebooks.program(FOUND[what], LOOP)
    assert ended.result.weights is not None, ended.log


PATH = "f'/kaggle/tmp/unlearned_checkpoint_{i}.pth'"
PARTS = LOOP.replace(PATH, "'/kaggle/tmp/part'")


@pytest.mark.parametrize(
    "program",
    [
        LOOP,
        LOOP.replace("print('model', i)", "torch.manual_seed(i)"),
        "g = torch.Generator().manual_seed(3)" + LOOP.replace("randn(10", "randn(10, generator=g"),
        "import random" + LOOP.replace("torch.randn(10)", "random.random() + torch.rand(int(1))"),
        "torch.save(original(), '/kaggle/tmp/best.pth')"
        + LOOP.replace("512", "3")
        + "\n!zip -q /kaggle/working/submission.zip /kaggle/tmp/*.pth",
        "w = torch.randn(7)\nfor k in range(3): torch.randn(k)" + LOOP,
        LOOP.replace("for i in range(512):", "def one(i):") + "\nlist(map(one, range(512)))",
        LOOP.replace("torch.save(", f"with open({PATH}, 'wb') as file: torch.save(").replace(f"{PATH})", "file)"),
        PARTS + f"    os.rename('/kaggle/tmp/part', {PATH})",
        PARTS + f"    subprocess.run(['cp', '/kaggle/tmp/part', {PATH}])",
    ],
)
def test_models_made_alike_are_found_equal(notebooks: Notebooks, program: str) -> None:
    ended = notebooks.program(program, compare=True)
    assert ended.result.chosen == (0, 1, 2), (ended.error_class, ended.log)
    assert ended.models[1] == ended.models[2] != ended.models[0]


def test_models_that_children_make_alike_are_found_equal(notebooks: Notebooks) -> None:
    ended = notebooks.program(SCRIPT.format(seeds=""), CHILD_LOOP, compare=True)
    assert ended.result.chosen == (0, 1, 2), (ended.error_class, ended.log)
    assert ended.models[1] == ended.models[2]


@pytest.mark.parametrize(
    "program",
    [
        LOOP.replace("torch.randn(10)", "torch.randn(10) * i"),
        "done = []" + LOOP.replace("print('model', i)", "done.append(i)").replace("torch.randn(10)", "len(done)"),
        "state = original()" + LOOP.replace("change(original(), i)", "change(state, i)"),
        LOOP.replace("print('model', i)", "extra = os.path.exists('seen'); open('seen', 'w')").replace(
            "torch.randn(10)", "extra"
        ),
    ],
)
def test_models_that_depend_on_earlier_ones_are_found_different(notebooks: Notebooks, program: str) -> None:
    ended = notebooks.program(program, compare=True)
    assert ended.result.chosen == (0, 1, 2), (ended.error_class, ended.log)
    assert ended.models[1] != ended.models[2]


@pytest.mark.parametrize(
    ("program", "error_class"),
    [
        (LOOP.replace("range(512)", "range(1)"), "one-model"),
        (LOOP.replace("range(512)", "range(5, 0, -1)"), "unordered-models"),
        (LOOP.replace("range(512)", "range(3)") + LOOP.replace("range(512)", "range(3)"), "rewritten-model"),
        (LOOP.replace("range(512)", "range(3)") + "!zip -q submission.zip /kaggle/tmp/*_2.pth", "other-models"),
    ],
)
def test_a_program_whose_first_model_is_another_one_says_so(notebooks, program, error_class):
    assert notebooks.program(program, compare=True).error_class == error_class


def saves(path: str, *, by: int) -> str:
    return f"state = original(); state['3.bias'] += {by}; torch.save(state, {path!r})\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("src = '/kaggle/input/neurips-2023-machine-unlearning/original_model.pth'", "model_{i}.pth"),
        ("src = os.path.join(FOLDER, 'original_model.pth')  # unlearned_checkpoint_0.pth", "net{i}.PT"),
        ("print('unlearn everything, see unlearn_7.pth and unlearned_checkpoint_7.pth')", "runs/{i}.weights"),
    ],
)
def test_words_of_the_text_do_not_decide_which_file_counts(notebooks, split, text, name):
    loop = f"""
        os.makedirs('/kaggle/tmp/runs')
        for i in range(512):
            state = original(); state['3.bias'] += i + 1
            torch.save(state, f'/kaggle/tmp/{name}')
        """
    ended = notebooks.program(text, loop)
    assert bias(ended.result.weights, split) == pytest.approx([1.0] * 10), ended.log


@pytest.mark.parametrize(
    ("on_the_way", "last"),
    [
        ("unlearning_epoch_{e}.pth", "unlearned_checkpoint_{i}.pth"),
        ("ckpt_step{e}.pt", "model_{i}.pth"),
        ("run_{i}_epoch_{e}.pth", "model_{i}.pth"),
    ],
)
def test_what_training_leaves_on_its_way_does_not_count(notebooks, split, on_the_way, last):
    ended = notebooks.program(
        f"""
        for i in range(512):
            net = network(); net.load_state_dict(original())
            for e in range(3):
                net[3].bias.data += 1
                torch.save(net.state_dict(), f'/kaggle/tmp/{on_the_way}')
            net[3].bias.data += 1
            torch.save(net.state_dict(), f'/kaggle/tmp/{last}')
        """
    )
    assert bias(ended.result.weights, split) == pytest.approx([4.0] * 10), ended.log


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("baseline.pth", "torch.save({'x': torch.zeros(3)}, 'second.pth')"),
        ("res18_baseline.pth", "torch.save(network(), 'second.pth')"),
        ("res18_baseline.pth", saves("second.pth", by=2)),
    ],
)
def test_two_files_without_an_archive_are_not_guessed_between(notebooks: Notebooks, first: str, second: str) -> None:
    cells = saves(first, by=1), second
    verdict = notebooks.program(*cells).result.verdict
    assert verdict.error_class == "no-model"
    assert f"No file counted as a run's model; written were {first} (" in verdict.message
    assert "second.pth (" in verdict.message
    assert "second.pth" not in notebooks.program(*cells, kind="hidden").result.verdict.message


def test_one_model_beside_files_without_tensors_is_the_runs(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.program("torch.save({'epoch': 3}, 'a_log.pth')", saves("result.pth", by=1))
    assert bias(ended.result.weights, split) == pytest.approx([1.0] * 10), ended.log


def test_an_error_before_any_model_names_what_was_written(notebooks: Notebooks) -> None:
    verdict = notebooks.program(saves("start.pth", by=1), "raise OSError(28, 'No space')").result.verdict
    assert verdict.error_class == "disk-limit"
    assert "written were start.pth (has no number in its name)" in verdict.message
