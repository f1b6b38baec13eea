"""What a kit's README says of the runs."""

import pytest

from tests.lethe.conftest import competition
from worker.preparation.starter_kit.readme import readme


@pytest.mark.parametrize(
    ("setup", "original"), [("reuse-n-1", "the original model"), ("reuse-n-n", "an original model of its own")]
)
def test_it_says_which_model_a_run_starts_from(setup: str, original: str) -> None:
    text = readme(
        competition(scoring={"setup": setup}),
        {"run_wall_time_s": 5.0, "sample_models": 8, "libraries": {"torch": "2.14"}},
    )
    assert f"fresh process, with {original} and another seed." in text


def test_the_readme_lists_what_a_run_finds_installed() -> None:
    about = {"run_wall_time_s": 5.0, "sample_models": 8, "libraries": {"torch": "2.14", "tqdm": "4.70"}}
    assert "| library | version |\n|---|---|\n| torch | 2.14 |\n| tqdm | 4.70 |\n" in readme(competition(), about)


def test_readme_tells_the_size_limit_of_a_python_file() -> None:
    about = {"run_wall_time_s": 5.0, "sample_models": 8, "libraries": {"torch": "2.14"}}
    assert "| upload | 5 MiB, one Python file up to 2 MiB |" in readme(competition(limits={"upload_mib": 5}), about)
