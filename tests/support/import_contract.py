"""Contracts that import-linter lacks: a list of what may be imported, and a rule over modules by their names."""

import re
import sys
from collections.abc import Iterator
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application.contract_utils import AlertLevel, remove_ignored_imports_and_report
from importlinter.domain.imports import ImportExpression


class AllowedImportsContract(Contract):
    """The source packages import the allowed packages and the standard library only.

    source_modules: packages under the rule, with all that they contain.
    except_modules: packages inside them with their own rule.
    allowed_modules: packages that may be imported, with all that they contain.
    unreachable_modules: packages that must not be imported over any number of steps either.
    ignore_imports: single imports that are excepted, each with its reason beside it.
    """

    type_name = "allowed"

    source_modules = fields.ListField(subfield=fields.StringField())
    except_modules = fields.ListField(subfield=fields.StringField(), required=False)
    allowed_modules = fields.ListField(subfield=fields.StringField())
    unreachable_modules = fields.ListField(subfield=fields.StringField(), required=False)
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        removal = remove_ignored_imports_and_report(
            graph=graph,
            ignore_imports=list(cast("set[ImportExpression] | None", self.ignore_imports) or ()),
            unmatched_alerting=AlertLevel.ERROR,
        )
        excepted = _names(self.except_modules)
        sources = [
            module
            for module in sorted(graph.modules)
            if _lies_in(module, _names(self.source_modules)) and not _lies_in(module, excepted)
        ]
        if not sources:
            raise ValueError(f"contract {self.name!r} governs no module: {self.source_modules} do not exist")
        findings = [finding for source in sources for finding in self._findings(graph, source)]
        return ContractCheck(
            kept=not findings,
            metadata={"findings": findings},
            warnings=list(removal.warnings),
            ignored_import_count=removal.ignored_import_count,
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        for finding in check.metadata["findings"]:
            output.print_error(f"- {finding}", bold=False)
        output.new_line()

    def _findings(self, graph: ImportGraph, source: str) -> Iterator[str]:
        allowed = _names(self.allowed_modules)
        for imported in sorted(graph.find_modules_directly_imported_by(source)):
            if _lies_in(imported, allowed) or imported.partition(".")[0] in sys.stdlib_module_names:
                continue
            details = graph.get_import_details(importer=source, imported=imported)
            lines = ", ".join(f"line {detail['line_number']}" for detail in details)
            yield f"{source} imports {imported} ({lines}); allowed: {', '.join(allowed)}"
        for target in _names(self.unreachable_modules):
            if target in graph.modules and (chain := graph.find_shortest_chain(importer=source, imported=target)):
                yield f"{source} reaches {target}: {' -> '.join(chain)}"


class NamedModulesContract(Contract):
    """Modules whose names match one pattern never import a module whose name matches another, directly.

    source_pattern, forbidden_pattern: regular expressions over whole dotted names.
    """

    type_name = "named"

    source_pattern = fields.StringField()
    forbidden_pattern = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        source, forbidden = re.compile(str(self.source_pattern)), re.compile(str(self.forbidden_pattern))
        sources = sorted(module for module in graph.modules if source.fullmatch(module))
        if not sources or not any(forbidden.fullmatch(module) for module in graph.modules):
            raise ValueError(f"contract {self.name!r} governs no module: a pattern matches none")
        findings = [
            f"{module} imports {imported}"
            for module in sources
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if forbidden.fullmatch(imported)
        ]
        return ContractCheck(kept=not findings, metadata={"findings": findings})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for finding in check.metadata["findings"]:
            output.print_error(f"- {finding}", bold=False)
        output.new_line()


def _names(value: object) -> tuple[str, ...]:
    return tuple(cast("list[str] | None", value) or ())


def _lies_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
