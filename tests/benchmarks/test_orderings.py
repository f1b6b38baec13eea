"""What the papers report, checked in made-up results that agree with it and that contradict it."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from benchmarks.papers.ordering import BENCHMARK_RULES, Ordering
from benchmarks.papers.orderings import check_orderings
from lethe.methods.catalogue import method_info

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "digits", "options": {}},
    "network": {"name": "mlp", "options": {}},
    "training": {"epochs": 20, "mixing": "none", "learning_rate": 0.05},
    "splits": {"forget": {"by": "random"}},
    "metric": {"setup": "reuse-n-1"},
    "n_models": 10,
}


def method(name: str, **constants: Any) -> dict[str, Any]:
    """Return a method's entry; its id is the name without the number of layers or the note after it."""
    identity = next((each for each in ("eu_k", "cf_k") if name.startswith(each[:3])), name.split(maxsplit=1)[0])
    if "+" in identity or identity == "retrained":
        return {"name": name, "id": None, "constants": {}, "key": name}
    own = {constant.name: constant.value for constant in method_info(identity).constants}
    return {"name": name, "id": identity, "constants": own | constants, "key": name}


def cell(rows: Mapping[str, Mapping[str, Any]], **settings: Any) -> dict[str, Any]:
    """Return a cell. rows: by method or reference, metric -> value or (value, standard error)."""
    made = {name: {"values": {metric: _value(value) for metric, value in row.items()}} for name, row in rows.items()}
    return {"settings": deepcopy(SETTINGS) | settings, "rows": made}


def results(methods: list[dict[str, Any]], **cells: dict[str, Any]) -> dict[str, Any]:
    return {"methods": methods, "cells": cells, "n_models": 10}


def check(content: dict[str, Any], name: str, part: str = "") -> list[Ordering]:
    """Return what is said of the statements of this id that hold `part`."""
    return [each for each in check_orderings(content) if each.id == name and part in each.statement]


def _value(value: Any) -> dict[str, Any]:
    if not isinstance(value, tuple):
        return {"value": value, "interval": None if value is None else [value, value]}
    middle, error = value
    return {"value": middle, "interval": [middle - 1.959964 * error, middle + 1.959964 * error]}


ORACLE, ORIGINAL = "exact retraining", "original model"
CONFUSION = {"forget": {"by": "interclass-confusion"}}
EACH = {"setup": "reuse-n-n"}


def f_of(values):
    return {name: {"f": value} for name, value in values.items()}


def decided(found):
    assert len(found) == 1
    return found[0].holds


@pytest.mark.parametrize(
    ("each", "order", "ssd"), [((0.3, 0.2, 0.1, 0.0), True, True), ((0.1, 0.0, 0.2, 0.3), False, False)]
)
def test_one_original_orders_methods_as_many_do(each, order, ssd):
    names = ("msg", "ssd", "cfw", "finetune")
    one = dict(zip(names, (0.4, 0.1, 0.05, 0.01), strict=True))
    content = results(
        [method(name) for name in names],
        one=cell(f_of(one)), each=cell(f_of(dict(zip(names, each, strict=True))), metric=EACH),
    )  # fmt: skip
    assert decided(check(content, "E-03", "Spearman")) is order
    assert decided(check(content, "E-03", "ssd")) is ssd


def gaps(msg, cfw, oracle, *, gap=0.1):
    """Return F of two methods whose accuracy gaps are alike, beside exact retraining."""
    return {"msg": {"accuracy_gap": 0.1, "f": msg}, "cfw": {"accuracy_gap": gap, "f": cfw}, ORACLE: {"f": oracle}}


def winners(*f, error):
    names = ("msg", "cfw", "finetune")
    rows = {name: {"f": (value, error)} for name, value in zip(names, f, strict=True)}
    return rows | {ORACLE: {"f": (0.2, 0.01)}, ORIGINAL: {"f": 0.0}}


def distances(msg):
    return {name: {"weight_distance": value} for name, value in {"msg": msg, "ssd": 50.0, ORACLE: 10.0}.items()}


def summed(retdev):
    return {"msg": {"retdev": retdev, "retain_retention": 0.9, "forget_retention": 1.4, "test_retention": 0.9}}


@pytest.mark.parametrize(
    ("statement", "rows", "holds"),
    [
        (("E-04",), gaps(0.08, 0.2, 0.4, gap=0.11), True),
        (("E-04",), gaps(0.08, 0.09, 0.4, gap=0.11), False),
        (("E-04",), gaps(0.08, 0.2, 0.4, gap=0.3), None),  # the gaps are not close
        (("E-04",), gaps((0.0, 0.0), (0.006, 0.001), 0.2), False),  # both next to nothing
        (("E-04",), gaps((0.05, 0.01), (0.11, 0.02), 0.2), None),  # within the error
        (("E-04",), gaps((0.05, 0.001), (0.15, 0.02), 0.2), True),
        (("E-01", "two winners"), winners(0.006, 0.006, 0.0, error=0.001), False),
        (("E-06", "MSG"), {"msg": {"f": (0.1, 0.01)}, "msg+cfw": {"f": (0.12, 0.01)}}, True),
        (("E-06", "MSG"), {"msg": {"f": (0.1, 0.01)}, "msg+cfw": {"f": (0.2, 0.01)}}, False),
        (("E-06", "FCS"), {"fcs": {"f": (0.1, 0.01)}, "fcs+cfw": {"f": (0.1, 0.02)}}, True),
        (("E-06", "FCS"), {"fcs": {"f": (0.1, 0.01)}, "fcs+cfw": {"f": (0.1, 0.005)}}, False),
        (("E-26",), distances(11.0), True),
        (("E-26",), distances(15.0), False),
        (("E-26",), distances(7.0), False),
        (("E-28",), summed(0.6), True),
        (("E-28",), summed(0.5), False),
    ],
)
def test_statement_follows_the_numbers_of_one_cell(statement, rows, holds):
    methods = [method(name) for name in rows if name not in (ORACLE, ORIGINAL)]
    assert decided(check(results(methods, one=cell(rows)), *statement)) is holds


@pytest.mark.parametrize(("error", "holds"), [(0.01, True), (0.1, None), (None, None)])
def test_difference_within_its_error_or_without_one_is_not_decided(error, holds):
    made = cell({ORIGINAL: {"mia_gap": (0.2, error or 0.0)}, "msg": {"mia_gap": (0.15, error or 0.0)}})
    if error is None:
        for row in made["rows"].values():
            row["values"]["mia_gap"]["interval"] = None
    assert decided(check(results([method("msg")], one=made), "E-07")) is holds


def with_epsilon(**by_method):
    made = cell({name: {} for name in by_method})
    for name, values in by_method.items():
        made["rows"][name]["epsilon"] = [float(value) for value in values]
    return results([method(name) for name in by_method], one=made)


def capped(share, order=1):
    """Return epsilon of 40 examples in ascending or descending order, the last `share` of them at the cap."""
    values = [i / 10 for i in range(40)][::order]
    return values[: round(40 * (1 - share))] + [50.0] * round(40 * share)


@pytest.mark.parametrize(
    ("msg", "cfw", "holds"),
    [
        (capped(0.0), capped(0.0), True),
        (capped(0.0), capped(0.0, order=-1), False),
        (capped(0.55), capped(0.55), None),
        (capped(0.0), capped(0.55), None),
    ],
    ids=["alike", "opposite", "most at the cap", "most of one at the cap"],
)
def test_hard_examples_are_not_compared_where_most_are_at_the_cap(msg, cfw, holds):
    found = check(with_epsilon(msg=msg, cfw=cfw), "E-05")
    assert decided(found) is holds
    if holds is None:
        assert "at the cap: msg" in found[0].numbers


def test_examples_are_compared_where_half_are_below_the_cap():
    (found,) = check(with_epsilon(msg=capped(0.5), cfw=capped(0.5)), "E-05")
    assert found.holds is None  # an overlap of 2 of 4 is within its error
    assert found.numbers.startswith("overlap 0.2")


@pytest.mark.parametrize(("prmq", "fcs", "holds"), [(0.3, 0.01, True), (0.01, 0.3, False)])
def test_prmq_transfers_and_fcs_does_not(prmq, fcs, holds):
    values = {"prmq": prmq, "fcs": fcs, "msg": 0.1}
    content = results([method(name) for name in values], one=cell(f_of(values)))
    assert [each.holds for each in check(content, "E-08")] == [holds, holds]


def test_tuned_methods_say_nothing_of_a_transfer():
    values = {"prmq": 0.3, "fcs": 0.1, "msg": 0.2}
    content = results([method(name, LR=0.77) for name in values], one=cell(f_of(values)))
    assert [each.holds for each in check(content, "E-08")] == [None, None]
    searched = results([method(name) for name in values], one=cell(f_of(values)))
    searched["benchmark"] = 'slug = "one"\nmethods = ["prmq", "fcs", "msg"]\n[[cell]]\ncompetition = "one.toml"\n'
    for row in searched["cells"]["one"]["rows"].values():
        row["tuning"] = {"settings": {"LR": 0.77}}
    assert [each.holds for each in check(searched, "E-08")] == [None, None]


@pytest.mark.parametrize(
    ("three_quarters", "full", "hard", "soft"), [(30, 50, True, True), (20, 50, True, False), (60, 50, False, False)]
)
def test_miau_rises_on_average(three_quarters, full, hard, soft):
    names = {share: f"retrained without {share} %" for share in (25, 50, 75)}
    low = dict(zip(names.values(), (10, 25, three_quarters), strict=True))
    rows = {name: {"miau": value} for name, value in low.items()} | {ORACLE: {"miau": full}}
    other = {name: {"miau": 10.0} for name in rows}  # no rise in one data set is normal
    content = results([method(name) for name in names.values()], one=cell(rows), two=cell(other))
    assert decided(check(content, "E-10", "above")) is hard
    assert decided(check(content, "E-10", "rises")) is soft


@pytest.mark.parametrize(("plain", "holds"), [(0.1, True), (0.3, False)])
def test_the_attack_is_stronger_where_networks_overfit(plain, holds):
    def made(test_accuracy, mia, **settings):
        original = {"retain_accuracy": 1.0, "test_accuracy": test_accuracy, "mia_gap": mia}
        return cell({ORIGINAL: original}, **settings)

    content = results([], plain=made(0.8, plain, training={"epochs": 5}), overfitted=made(0.5, 0.2))
    assert decided(check(content, "E-11")) is holds


def test_cells_of_other_data_are_not_compared():
    row = {ORIGINAL: {"retain_accuracy": 1.0, "test_accuracy": 0.8, "mia_gap": 0.1}}
    less = {ORIGINAL: {"retain_accuracy": 1.0, "test_accuracy": 0.5, "mia_gap": 0.2}}
    other = {"training": {"epochs": 5}, "dataset": {"name": "mnist"}}
    assert check(results([], one=cell(row), two=cell(less, **other)), "E-11")[0].holds is None


def by_layers(values, metric):
    rows = {f"eu_{k}": {metric: value} for k, value in enumerate(values, start=1)}
    return [method(name, K=int(name[-1])) for name in rows], rows


@pytest.mark.parametrize(("last", "falls", "flat"), [(0.52, True, False), (0.85, False, False), (0.77, True, True)])
def test_the_classwise_attack_by_layers(last, falls, flat):
    metric = "mia_confidence_classwise"
    methods, rows = by_layers((0.77, last), metric)
    rows |= {ORIGINAL: {metric: 0.78}}
    content = results(methods, confused=cell(rows, splits=CONFUSION), random=cell(rows))
    assert decided(check(content, "E-17", "falls")) is falls
    assert decided(check(content, "E-17", "at most")) is flat


@pytest.mark.parametrize(("error", "utility", "falls", "flat"), [(0.3, 0.07, True, True), (0.9, 0.2, False, False)])
def test_more_epochs_of_cf_k_leave_less_confusion(error, utility, falls, flat):
    rows = {
        "cf_1": {"targeted_error": 0.8, "ic_utility": 0.06},
        "cf_1 more": {"targeted_error": error, "ic_utility": utility},
    }
    methods = [method("cf_1", K=1, EPOCHS=5), method("cf_1 more", K=1, EPOCHS=20), method("cf_2", K=2, EPOCHS=50)]
    content = results(methods, one=cell(rows | {"cf_2": {"targeted_error": 0.9}}, splits=CONFUSION))
    assert decided(check(content, "E-18", "targeted")) is falls
    assert decided(check(content, "E-18", "ic_utility")) is flat


@pytest.mark.parametrize(("stopped", "holds"), [(0.3, True), (0.95, False)])
def test_a_regularised_original_leaves_less(stopped, holds):
    methods, plain = by_layers((0.9, 0.0), "targeted_error")
    regularised = {"eu_1": {"targeted_error": stopped}, "eu_2": {"targeted_error": 0.5}}  # of all layers: not compared
    training = {"epochs": 10, "mixing": "none", "learning_rate": 0.05}
    content = results(
        methods, plain=cell(plain, splits=CONFUSION), early=cell(regularised, splits=CONFUSION, training=training)
    )
    found = check(content, "E-19")
    assert decided(found) is holds
    assert found[0].cell == "plain, early"


@pytest.mark.parametrize(("share", "holds"), [(0.1, True), (0.0, False)])
def test_some_images_are_hit_in_every_retrained_model(share, holds):
    metric = "consistent_unforgettability"
    made = cell({ORACLE: {metric: share}, "msg": {metric: 0.2}, "cfw": {metric: 0.0}})
    made["rows"][ORACLE] |= {"tables": {metric: {"expected_all": 0.01}}, "epsilon": [1.0] * 100}
    found = check(results([method("msg"), method("cfw")], one=made), "E-24")
    assert decided(found) is holds
    assert "at most 0.030 (95 %)" in found[0].numbers
    assert "1 of 2 methods" in found[0].numbers


@pytest.mark.parametrize(("ascent", "holds"), [(0.9, True), (0.1, False)])
def test_gradient_ascent_is_not_in_the_first_group(ascent, holds):
    values = {"gradient_ascent": ascent, "msg": 0.11, "cfw": 0.12, "prmq": 0.5, "kde": 0.51}
    rows = {name: {"retdev": value} for name, value in values.items()}
    found = check(results([method(name) for name in values], one=cell(rows)), "E-21")
    assert decided(found) is holds
    assert found[0].numbers == f"gradient_ascent in G{3 if holds else 1}"


def test_a_benchmark_without_the_data_is_told_what_is_missing():
    content = results([method("msg")], one=cell({"msg": {}}))
    for rule in BENCHMARK_RULES:
        found = check(content, rule.id, rule.statement)
        assert [each.holds for each in found] == [None]
        assert found[0].numbers == f"not in this benchmark: needs {rule.needs}"


def with_klom(metric="klom", *, uncounted=0, f=(0.0, 0.1, 0.2, 0.3)):
    names = ("finetune", "cfw", "msg", "prmq")
    rows = {name: {"f": value, metric: 9.0 - 10 * value} for name, value in zip(names, f, strict=True)}
    made = cell(rows | {ORIGINAL: {metric: 9.0}, ORACLE: {metric: 1.0}})
    made["rows"][ORIGINAL] |= {"tables": {metric: {"uncounted": uncounted}}, "epsilon": [1.0] * 10}
    return results([method(name) for name in names], one=made)


@pytest.mark.parametrize(
    ("metric", "uncounted", "holds"), [("klom", 9, True), ("klom", 10, None), ("klom_closed", 0, True)]
)
def test_klom_is_not_compared_where_it_leaves_out_the_original(metric, uncounted, holds):
    found = check(with_klom(metric, uncounted=uncounted), "E-27")
    assert {each.holds for each in found} == {holds}


def test_klom_is_not_ranked_against_an_f_that_is_always_the_same():
    assert decided(check(with_klom(f=(0.1, 0.1, 0.1, 0.1)), "E-27", "Spearman")) is None


def test_klom_is_ranked_by_its_mean_over_examples():
    content = with_klom()
    for name, mean in (("finetune", 1.0), ("cfw", 2.0), ("msg", 3.0), ("prmq", 4.0)):
        content["cells"]["one"]["rows"][name]["tables"] = {"klom": {"mean": mean}}
    assert decided(check(content, "E-27", "Spearman")) is False
