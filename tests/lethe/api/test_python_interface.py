"""`import lethe`: arrays, torch modules and folders go in, objects with frames, JSON and HTML come out."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import lethe
from lethe.errors import InvalidInput
from lethe.metrics import InvalidMetricInput

N, S = 16, 9
DOCS = Path(__file__).parents[3] / "docs"


def require_schema(text: str, name: str) -> dict:
    """Return the document if it is what docs/schemas says."""
    jsonschema.validate(json.loads(text), json.loads((DOCS / "schemas" / f"{name}.json").read_text()))
    return json.loads(text)


def confidences(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.0, 2.0, (N, S))


@pytest.fixture
def few_models():
    """The prepared split has 5 models, of which a warning speaks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="only 5 models|5 unlearned and")
        yield


ONE_METRIC = (
    "u, r = np.random.default_rng(0).normal(size=(2, 16, 9)); "
    "assert lethe.evaluate(u, r, metrics='klom_closed')['klom_closed'].result.value > 0"
)


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("import lethe", ("numpy", "scipy", "numba", "torch", "pydantic")),
        (f"import lethe, numpy as np; {ONE_METRIC}", ("numba", "scipy.stats", "scipy.optimize", "torch", "rich")),
    ],
)
def test_import_and_one_metric_load_neither_the_others_nor_a_compiler(program: str, heavy: tuple[str, ...]) -> None:
    program = f"{program}; import sys; print([n for n in {heavy} if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_names_that_are_offered_are_there() -> None:
    assert all(getattr(lethe, name) is not None for name in lethe.__all__)
    assert set(lethe.__all__) <= set(dir(lethe))
    with pytest.raises(AttributeError, match=r"no attribute 'evalute'; there are .*evaluate"):
        _ = lethe.evalute


def test_evaluation_of_arrays() -> None:
    found = lethe.evaluate(confidences(1), confidences(2), oracle=confidences(3), metrics=["klom", "ulira_split"])
    expected = lethe.metrics.evaluate(
        lethe.metrics.Inputs({"confidences": confidences(1)}, {"confidences": confidences(2)}), ["klom"]
    )
    klom = found["klom"]
    assert klom.result.value == expected["klom"].result.value
    assert len(repr(found)) < 120
    frame = found.to_frame()
    assert list(frame["metric"]) == ["klom", "ulira_split"]
    assert frame["value"][0] == klom.result.value
    assert frame["oracle"][0] == klom.oracle.value
    require_schema(found.to_json(examples=True), "metrics")
    stored = require_schema(found.to_json(), "metrics")
    assert stored["metrics"]["klom"]["result"]["value"] == klom.result.value
    assert f"<td>{klom.oracle.value:.4g}</td>" in found._repr_html_()
    with pytest.raises(KeyError, match="there are klom, ulira_split"):
        _ = found["f"]


def test_files_and_arrays_give_the_same(tmp_path: Path) -> None:
    np.savez(tmp_path / "u.npz", confidences=confidences(1))
    from_file = lethe.evaluate(tmp_path / "u.npz", {"confidences": confidences(2)}, metrics="klom")
    assert from_file["klom"].result.value == lethe.evaluate(confidences(1), confidences(2))["klom"].result.value


def test_score_of_arrays(tmp_path: Path) -> None:
    given = lethe.metrics.ModelOutputs(confidences(1), np.full(N, 0.9), np.full(N, 0.8))
    references = [
        {"confidences": confidences(seed), "retain_accuracy": np.full(N, 0.9), "test_accuracy": np.full(N, 0.9)}
        for seed in (2, 3)
    ]
    found = lethe.score(given, references[0], oracle=references[1], original=given, n_resamples=20)
    assert found.value == pytest.approx(found.score.forgetting_quality * 8 / 9)
    assert found.share_of_oracle == found.value / found.oracle.headline
    assert list(found.to_frame()["models"]) == ["unlearned", "oracle", "original"]
    assert require_schema(found.to_json(tmp_path / "s.json"), "score") == json.loads((tmp_path / "s.json").read_text())
    assert len(repr(found)) < 120
    assert "<td>oracle</td>" in found._repr_html_()
    assert lethe.plots.epsilon(found).axes


def test_split_gives_its_parts(prepared: Path) -> None:
    split = lethe.Split.load(prepared)
    assert (split.n_models, split.competition) == (5, "small")
    forget = split.examples("forget")
    assert len(forget["images"]) == len(forget["labels"]) == split.outputs("oracle").confidences.shape[1]
    assert "n_models=5" in repr(split)
    assert "small" in split._repr_html_()
    with pytest.raises(InvalidInput, match="no set 'hidden'; there are retain, forget"):
        split.examples("hidden")


def test_method_runs_are_evaluated_like_their_modules(prepared: Path, quick_children, few_models, capsys) -> None:
    split = lethe.Split.load(prepared)
    runs = lethe.methods.run("finetune", split, runs=5, EPOCHS=1, progress=True)
    assert "finetune" in (shown := capsys.readouterr().err)
    assert "100%" in shown
    assert len(runs) == len(runs.to_frame()) == len(list(runs.folder.iterdir())) == 5
    assert len(repr(runs)) < 120
    modules = []
    for path in sorted(runs.folder.iterdir()):
        modules.append(split.original_model())
        modules[-1].load_state_dict(__import__("safetensors.torch").torch.load_file(path))
    of_runs, of_modules = (lethe.score(given, split=split) for given in (runs, modules))
    assert of_runs.value == of_modules.value
    assert of_runs.original.headline <= of_runs.oracle.headline
    evaluation = lethe.evaluate(modules, split=prepared, metrics=["score", "f"])
    assert evaluation["f"].result.value == of_runs.score.forgetting_quality
    with pytest.raises(InvalidMetricInput, match="a split has its own"):
        lethe.evaluate(runs, confidences(2), split=split)
    with pytest.raises(InvalidMetricInput, match="`split` is needed"):
        lethe.evaluate(modules[:1], confidences(2))


def test_benchmark_is_read_and_shown(finished, tmp_path: Path) -> None:
    found = lethe.benchmark(*finished)
    assert found.methods == ("original", "finetune LR=0.05", "broken")
    assert len(repr(found)) < 120
    stored = require_schema(found.to_json(tmp_path / "results.json"), "benchmark")
    require_schema((DOCS / "benchmarks" / "tofu-folder.json").read_text(), "benchmark")
    assert lethe.benchmark(tmp_path / "results.json").to_csv() == found.to_csv()
    del stored["n_models"]
    with pytest.raises(jsonschema.ValidationError, match="n_models"):
        require_schema(json.dumps(stored), "benchmark")
    frame = found.to_frame()
    assert set(frame[frame["method"] == "broken"]["status"]) == {"failed"}
    assert r"\toprule" in found.to_latex()
    value = frame[(frame["status"] == "computed") & (frame["method"] == "finetune LR=0.05")]["value"].iloc[0]
    assert str(float(value)) in found.to_latex(all_digits=True)
    assert "<caption>" in found._repr_html_()
