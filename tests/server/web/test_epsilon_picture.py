"""Pictures of epsilon: drawn without the metrics' dependencies, and true to them."""

import json
import math
from statistics import NormalDist

import numpy as np
import pytest

from lethe.metrics.scoring.attacks import crossfit
from lethe.metrics.scoring.epsilon import bucket_points, per_example_epsilon
from server.web.charts import epsilon_charts
from server.web.charts.epsilon_charts import MAX_DRAWN, as_json, epsilons, points, separation, separations

DELTA = 1e-5


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.4])
def test_the_pictures_epsilon_is_the_metrics(shift: float) -> None:
    retrained = np.array([[NormalDist().inv_cdf((index + 0.5) / 64)] for index in range(64)])
    exact = per_example_epsilon(retrained + shift, retrained, attacks="exact", delta=DELTA)  # type: ignore[arg-type]
    assert separation(shift, 64, delta=DELTA).epsilon == pytest.approx(exact[0], abs=0.02)


def test_picture_of_the_default_attacks_has_their_floor() -> None:
    assert epsilon_charts.FLOOR == crossfit.FLOOR
    far = separation(9.0, 512, delta=DELTA, lowest_rate=epsilon_charts.FLOOR)
    assert far.epsilon == pytest.approx(math.log((1 - DELTA - crossfit.FLOOR) / crossfit.FLOOR))
    assert far.points > 0.0
    shown = [one.epsilon for one in separations(512, DELTA, epsilon_charts.FLOOR)]
    assert shown == sorted(shown)


def test_one_threshold_tells_no_more_than_all_attacks_do() -> None:
    retrained = np.array([[NormalDist().inv_cdf((index + 0.5) / 64)] for index in range(64)])
    exact = per_example_epsilon(retrained + 0.3, retrained, attacks="exact", delta=DELTA)  # type: ignore[arg-type]
    assert 0.9 < separation(0.3, 64, delta=DELTA).epsilon < exact[0]


@pytest.mark.parametrize("epsilon", [0.0, 0.49, 0.5, 2.3, 6.9, 7.0, 50.0])
@pytest.mark.parametrize("n_models", [4, 512])
def test_the_pictures_points_are_the_metrics(epsilon: float, n_models: int) -> None:
    assert points(epsilon, n_models) == bucket_points([epsilon], n_models=n_models)[0]


def test_further_apart_is_worse() -> None:
    shown = separations(512, DELTA)
    epsilons = [one.epsilon for one in shown]
    assert epsilons == sorted(epsilons)
    assert shown[0].points == 1.0
    assert shown[-1].points < 0.01


def test_a_huge_competition_is_drawn_as_quickly_as_a_usual_one() -> None:
    assert separations(65_536, DELTA) == separations(MAX_DRAWN, DELTA)


def test_the_script_gets_what_each_step_shows() -> None:
    steps = json.loads(as_json(separations(16, DELTA)))
    assert len(steps) == 31
    assert steps[0] == [0.0, 210.0, "0.00", "1.000"]


CAP = 50.0


def bars(*values: float) -> list[dict[str, object]]:
    chart = epsilons([{"value": value, "models": "own"} for value in values], cap=CAP)
    layers = chart.get("layer", [chart])
    source = layers[0].get("data") or chart["data"]
    return source["values"]  # type: ignore[no-any-return]


def test_examples_at_the_cap_have_a_bar_of_their_own() -> None:
    *others, last = bars(0.0, 0.5, 1.0, 1.9, CAP, CAP)
    assert (last["range"], last["examples"]) == ("no attack failed (the cap of 50)", 2)
    assert len(others) == 4, "the others keep the axis for themselves"
    assert max(float(str(bar["high"])) for bar in others) < float(str(last["low"])) < 3


def test_cap_is_named_above_its_bar_without_needless_digits() -> None:
    label = epsilons([{"value": 49.9999, "models": "own"}], cap=49.9999)["layer"][1]
    assert label["data"]["values"][0]["text"] == "50, the cap"
    assert label["encoding"]["y"] == {"value": 0}, "below the bars stand the axis's numbers"


def test_without_the_cap_there_is_no_bar_for_it() -> None:
    assert [bar["examples"] for bar in bars(1.0, 1.0)] == [2]
    assert "layer" not in epsilons([{"value": 1.0, "models": "own"}], cap=CAP)
    assert bars(CAP)[0]["examples"] == 1
