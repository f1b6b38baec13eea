"""Every address that the application answers, filled with the names of one competition."""

import re
from itertools import product

from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts

from server.admin.exports import ExportTable
from server.main import create_app

CHOICES = {  # what a path takes of a few known words
    "table": tuple(table.value for table in ExportTable),
    "visibility": ("public", "private"),
    "board": ("public", "private"),
}


def addresses(names: dict[str, str], methods: frozenset[str]) -> dict[tuple[str, str], bool]:
    """Return method and address of every route, filled with each of this competition's names that it takes.

    True of those that declare parameters of the query.
    """
    found = {}
    for route in iter_route_contexts(create_app().routes):
        if "static" in route.path:
            continue
        asked = re.findall(r"\{(\w+)", route.path)
        for values in product(*(CHOICES.get(name, (names.get(name, "x"),)) for name in asked)):
            filled = iter(values)
            address = re.sub(r"\{[^}]+\}", lambda _match, left=filled: next(left), route.path)
            takes = declares_parameters(getattr(route.route, "dependant", None))
            found |= {(method, address): takes for method in methods & set(route.methods or ())}
    return dict(sorted(found.items()))


def declares_parameters(dependant: Dependant | None) -> bool:
    return dependant is not None and (
        bool(dependant.query_params) or any(declares_parameters(inner) for inner in dependant.dependencies)
    )
