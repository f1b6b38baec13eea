"""What stands at the cap of epsilon does not squeeze the rest of its chart."""

from server.web.charts.epsilon_charts import epsilons

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
