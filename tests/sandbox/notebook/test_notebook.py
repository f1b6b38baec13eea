"""Notebooks run unchanged: their files, their archive, their shell lines, and what becomes of them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file

from tests.sandbox.notebook.conftest import Notebooks
from tests.support.forked_children import run_code

SAVES = """
def save_all(n, name='unlearned_checkpoint_{}.pth', change=lambda state, i: state):
    for i in range(n):
        state = original()
        state['3.bias'] += i
        torch.save(change(state, i), '/kaggle/tmp/' + name.format(i))
"""


def last_biases(models: dict[int, bytes], original: Path) -> dict[int, int]:
    """Return by how much each model was changed."""
    bias = load_file(original / "original_model.safetensors")["3.bias"]
    return {slot: round((load(weights)["3.bias"] - bias).mean().item()) for slot, weights in models.items()}


def test_the_folders_are_those_of_the_competition(notebooks: Notebooks) -> None:
    ended = notebooks.run(
        """
        import pandas as pd, torchvision
        assert sorted(os.listdir('/kaggle')) == ['input', 'tmp', 'working'] and os.getcwd() == '/kaggle/working'
        assert not os.path.exists(f'{FOLDER}/empty.txt')
        for name in ('retain', 'forget', 'validation'):
            table = pd.read_csv(f'{FOLDER}/{name}.csv')
            assert list(table.columns) == ['image_id', 'age_group', 'age', 'person_id'] and len(table) == 60
            for image_id, person in zip(table['image_id'], table['person_id']):
                a, b = image_id.split('-')
                assert int(a) == person
                picture = torchvision.io.read_image(f'{FOLDER}/images/{a}/{b}.png')
                assert picture.dtype == torch.uint8 and picture.shape == (1, 8, 8)
        counts = json.load(open(f'{FOLDER}/age_class_weights.json'))
        assert sum(counts.values()) == 120 and set(counts) == {str(i) for i in range(10)}
        network().load_state_dict(original())
        """,
        SAVES + "save_all(3)",
    )
    assert ended.result.verdict.outcome == "weights", ended.log
    assert ended.result.chosen == (0, 1, 2)


def test_models_come_out_in_the_order_of_their_numbers(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.run(SAVES + "save_all(12)", wanted=12)
    changed = last_biases(ended.models, split)
    assert [changed[slot] for slot in ended.result.chosen] == list(range(12))


def test_notebook_counts_all_files_while_the_disk_holds_few(notebooks: Notebooks) -> None:
    # 60 models of 1 MB each against 16 MiB of scratch: a tensor is part of a storage that is saved whole.
    ended = notebooks.run(
        SAVES,
        """
        for i in range(60):
            state = original()
            state['3.bias'] = torch.cat([state['3.bias'], torch.zeros(1 << 18)])[:10]
            torch.save(state, f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')
            used = int(subprocess.check_output('du -sk /kaggle/tmp', shell=True).split()[0])
            assert min(i + 1, 4) * 1024 <= used < 14 * 1024, used
        assert len(os.listdir('/kaggle/tmp')) == 60
        """,
        wanted=60,
    )
    assert ended.result.verdict.outcome == "weights", ended.log
    assert len(ended.models) == 60


def test_half_precision_is_cast_up_and_said(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.run(SAVES + "save_all(3, change=lambda s, i: {k: v.half() for k, v in s.items()})")
    assert {load(model)["3.bias"].dtype for model in ended.models.values()} == {torch.float32}
    assert ended.log.count("cast from float16 to float32") == 1
    assert last_biases(ended.models, split)[2] == 2


@pytest.mark.parametrize(
    "command",
    [
        "subprocess.run(['zip', '-q', '-j', 'submission.zip', *sorted(glob.glob('/kaggle/tmp/unlearned_*'))])",
        "!zip -q submission.zip /kaggle/tmp/unlearned_*",
        "with zipfile.ZipFile('submission.zip', 'w') as z:\n"
        "    [z.write(p) for p in glob.glob('/kaggle/tmp/unlearned_*')]",
    ],
)
def test_the_members_of_the_archive_decide(notebooks: Notebooks, split: Path, command: str) -> None:
    ended = notebooks.run(
        SAVES + "save_all(3)\nsave_all(2, name='temp_{}.pth', change=lambda s, i: {**s, '3.bias': s['3.bias'] + 50})",
        "import glob, zipfile\n" + command,
    )
    assert ended.result.verdict.outcome == "weights", ended.log
    changed = last_biases(ended.models, split)
    assert [changed[slot] for slot in ended.result.chosen] == [0, 1, 2]


def test_an_archive_of_other_names_decides(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.run(
        SAVES + "save_all(3)\nsave_all(3, name='final_{}.pt', change=lambda s, i: {**s, '3.bias': s['3.bias'] + 50})",
        "!zip submission.zip /kaggle/tmp/final_*.pt",
    )
    changed = last_biases(ended.models, split)
    assert [changed[slot] for slot in ended.result.chosen] == [50, 51, 52]


def test_left_over_files_are_ignored_without_an_archive(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.run(
        SAVES + "torch.save({'epoch': 3}, '/kaggle/tmp/a.pth')\nopen('/kaggle/tmp/b.pth', 'w').write('x')\nsave_all(3)"
    )
    assert [last_biases(ended.models, split)[slot] for slot in ended.result.chosen] == [0, 1, 2]


def test_a_temporary_file_can_be_read_back_in_every_run(notebooks: Notebooks) -> None:
    ended = notebooks.run(
        SAVES,
        """
        torch.save(original(), '/kaggle/tmp/best.pth')
        for i in range(40):
            state = torch.load('/kaggle/tmp/best.pth')
            state['pad'] = torch.zeros(1 << 18)
            torch.save(state, '/kaggle/tmp/scratch.pth')
            back = torch.load('/kaggle/tmp/scratch.pth')
            del back['pad']
            torch.save(back, f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')
        """,
        wanted=40,
    )
    assert ended.result.verdict.outcome == "weights", ended.log


def test_a_file_written_again_counts_as_last_written(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.run(SAVES + "save_all(3)\nsave_all(3, change=lambda s, i: {**s, '3.bias': s['3.bias'] + 7})")
    assert sorted(last_biases(ended.models, split).values()) == [7, 8, 9]


def test_a_child_process_may_write_the_models(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.run(
        SAVES,
        """
        import multiprocessing
        child = multiprocessing.get_context('fork').Process(target=save_all, args=(3,))
        child.start()
        child.join()
        """,
    )
    assert [last_biases(ended.models, split)[slot] for slot in ended.result.chosen] == [0, 1, 2]


def test_ipython_lines_do_what_they_can_or_are_reported(notebooks: Notebooks) -> None:
    ended = notebooks.run(
        SAVES,
        """
        %matplotlib inline
        %nonsense
        name = 'tmp'
        !echo in {name} and $name
        !no-such-command
        %cd /kaggle/tmp
        %pip install timm
        here = !pwd
        assert here == ['/kaggle/tmp'], here
        %cd /kaggle/working
        from IPython.display import display, clear_output
        from tqdm.notebook import tqdm
        for i in tqdm(range(1)):
            !echo round {i}
        display('shown')
        """,
        "%%writefile mine.py\ndef f():\n    return 41\n",
        "%%bash\necho from bash; ls mine.py\n",
        "import mine\nassert mine.f() == 41\nsave_all(3)",
    )
    assert ended.result.verdict.outcome == "weights", ended.log
    for line in ("in tmp and tmp", "round 0", "shown", "from bash", "%nonsense was skipped", "%pip was skipped", "127"):
        assert line in ended.log


def test_the_run_ends_with_its_first_model_where_that_is_enough(notebooks: Notebooks) -> None:
    ended = notebooks.run(SAVES + "save_all(1)\nwhile True: pass", stop_after=1)
    assert ended.result.verdict.outcome == "weights"
    assert len(ended.result.chosen) == 1
    assert ended.result.wall_time_s < 100


def test_too_few_models_are_named(notebooks: Notebooks) -> None:
    assert notebooks.run(SAVES + "save_all(2)").error_class == "too-few-checkpoints"


def test_an_exception_names_cell_and_line(notebooks: Notebooks) -> None:
    verdict = notebooks.run("x = 1\n\nraise KeyError('x')").result.verdict
    assert (verdict.error_class, verdict.file, verdict.line) == ("exception", "cell-02.py", 3)


def test_a_model_of_another_shape_is_named_if_it_counts(notebooks: Notebooks) -> None:
    ended = notebooks.run(SAVES + "save_all(3, change=lambda s, i: {**s, '3.bias': torch.zeros(11)})")
    assert ended.error_class == "wrong-weights"


def test_a_whole_module_is_no_state_dict(notebooks: Notebooks) -> None:
    ended = notebooks.run("for i in range(3):\n    torch.save(network(), f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')")
    assert ended.error_class == "unreadable-checkpoint"


def test_nan_in_a_model_that_counts_is_named(notebooks: Notebooks) -> None:
    ended = notebooks.run(SAVES + "save_all(3, change=lambda s, i: {**s, '3.bias': s['3.bias'] + float('nan')})")
    assert ended.error_class == "non-finite-weights"


def test_exit_ends_a_notebook_as_it_stands(notebooks: Notebooks) -> None:
    assert notebooks.run(SAVES + "save_all(3)\nexit()", "raise ValueError").result.verdict.outcome == "weights"


def test_code_that_insists_on_a_gpu_is_told_so(notebooks: Notebooks) -> None:
    for insists in (
        "if not torch.cuda.is_available():\n    raise RuntimeError('Make sure you have added an accelerator')",
        "network().cuda()",
        "network().to('cuda')",
        "torch.load(f'{FOLDER}/original_model.pth', map_location='cuda')",
    ):
        ended = notebooks.run(insists)
        assert (ended.error_class, ended.result.verdict.file) == ("cuda-required", "cell-02.py"), ended.log


def test_cuda_can_mean_the_cpu(notebooks: Notebooks) -> None:
    ended = notebooks.run(
        """
        device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        assert device.type == 'cuda' and torch.cuda.device_count() == 1
        torch.backends.cudnn.benchmark = True
        torch.cuda.manual_seed_all(3)
        net = network().to(device)
        other = network().cuda()
        scaler = torch.cuda.amp.GradScaler()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        loader = torch.utils.data.DataLoader(torch.randn(8, 1, 8, 8), batch_size=4, pin_memory=True)
        for x in loader:
            x = x.to(device, non_blocking=True)
            y = torch.zeros(len(x), dtype=torch.long, device='cuda:0')
            with torch.cuda.amp.autocast():
                loss = nn.CrossEntropyLoss(weight=torch.ones(10).cuda())(net(x), y) + other(x.cuda()).sum() * 0
            with torch.autocast(device_type='cuda', dtype=torch.float16):
                net(x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            for kind in (torch.optim.Adam, torch.optim.AdamW):
                kind(other.parameters(), lr=1e-4).step()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(); end.record()
        assert begin.elapsed_time(end) >= 0
        torch.cuda.synchronize(); torch.cuda.empty_cache()
        for i in range(3):
            net.load_state_dict(torch.load(f'{FOLDER}/original_model.pth', map_location=device))
            torch.save(net.state_dict(), f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')
        """,
        map_cuda=True,
    )
    assert ended.result.verdict.outcome == "weights", ended.log


def test_two_runs_see_nothing_of_each_other(notebooks: Notebooks) -> None:
    notebooks.run(SAVES + "save_all(3)\nopen('/kaggle/working/left', 'w').write('x')")
    ended = notebooks.run(
        "assert os.listdir('/kaggle/tmp') == [] and os.listdir('/kaggle/working') == []", SAVES + "save_all(3)"
    )
    assert ended.result.verdict.outcome == "weights", ended.log


def test_the_archive_decides_though_more_models_were_written_before(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.run(
        SAVES + "save_all(6)", "!zip -q submission.zip /kaggle/tmp/*_3.pth /kaggle/tmp/*_4.pth /kaggle/tmp/*_5.pth"
    )
    assert [last_biases(ended.models, split)[slot] for slot in ended.result.chosen] == [3, 4, 5]


def test_a_notebook_may_ask_how_many_runs_count(notebooks: Notebooks) -> None:
    ended = notebooks.run(SAVES + "save_all(int(os.environ['LETHE_RUNS']))", wanted=5)
    assert len(ended.result.chosen) == 5


CODE = """
import torch, copy
from torchvision import models
from sandbox.guest.notebook.entry import scale_in
from lethe.networks.small_networks import Mlp

torch.manual_seed(0)
plain = models.resnet18(num_classes=10).eval()
pictures = torch.randint(0, 256, (2, 3, 32, 32)).float()
description = {"input_scale": [0.5, 0.25, 0.125], "input_shift": -2.0}
scaled = pictures * torch.tensor(description["input_scale"]).view(3, 1, 1) - 2.0
assert scale_in(plain, description)
net = models.resnet18(weights=None, num_classes=10).eval()
net.load_state_dict(plain.state_dict())
assert list(net.state_dict()) == list(plain.state_dict())
assert torch.equal(net(pictures), plain(scaled))
assert torch.equal(copy.deepcopy(net)(pictures), plain(scaled))
assert scale_in(Mlp((1, 8, 8), 10), {"input_scale": 1.0, "input_shift": 0.0})
assert not scale_in(Mlp((1, 8, 8), 10), description)
"""


def test_a_network_scales_its_own_inputs() -> None:
    # In its own process: the class stays changed.
    run_code(CODE)
