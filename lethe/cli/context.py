"""What most commands share: which server and competition, an id by its first characters, packages of a checkout."""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property, wraps
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, TypeVar

import typer

import lethe
from lethe.cli import client_config
from lethe.cli.output import print_json
from lethe.client.api import ApiError, LetheClient, NotLoggedIn
from lethe.errors import AppError, InvalidInput

PACKAGES = ("server", "worker")


def operator_packages() -> list[str]:
    """Return the packages beside this one that have operator commands, with their folder first in the search path."""
    root = Path(lethe.__file__).resolve().parents[1]
    found = [package for package in PACKAGES if (root / package / "cli" / "commands.py").is_file()]
    if found and str(root) not in sys.path[:1]:
        sys.path.insert(0, str(root))
    return found


def as_expected(error: Exception) -> AppError | None:
    """Return in words what metrics, or the database of an operator's command, raised; None for what nobody expects."""
    from lethe.metrics.core.invalid_input import InvalidScoreInput

    if isinstance(error, InvalidScoreInput):
        return InvalidInput(str(error))
    if "server" not in operator_packages():
        return None
    expected: AppError | None = import_module("server.cli.commands").as_expected(error)
    return expected


def import_from_checkout(name: str, *, purpose: str) -> ModuleType:
    """Return a module that lies beside this package, never one of the current folder.

    Raises InvalidInput, saying what it is for, where this package was installed without it.
    """
    operator_packages()
    root = Path(lethe.__file__).resolve().parents[1]
    if not (root / f"{name.replace('.', '/')}.py").is_file():
        raise InvalidInput(f"{purpose} needs a checkout of Lethe: {name} is not part of the installed package")
    return import_module(name)


Function = TypeVar("Function", bound=Callable[..., Any])
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Url = Annotated[str | None, typer.Option("--url", help="The server's URL. Default: LETHE_URL, else the last log-in's.")]
Competition = Annotated[
    str | None,
    typer.Option("--competition", "-c", help="The competition's name. Default: LETHE_COMPETITION, else the kit's."),
]
Slug = Annotated[str, typer.Argument(help="The competition's name.", metavar="COMPETITION")]


@contextmanager
def connected(url: str | None = None, *, anonymous: bool = False) -> Iterator[LetheClient]:
    """Yield a client with the caller's token. Raises NotLoggedIn, saying what to do, if there is none."""
    address = client_config.find_server(url)
    token = client_config.get_token(address)
    if token is None and not anonymous:
        raise NotLoggedIn(client_config.missing_token(address))
    with LetheClient(address.url, token=token) as client:
        try:
            yield client
        except ApiError as error:
            if error.http_status != NotLoggedIn.http_status:
                raise
            refused = f"{address.url} does not take this token. Run `lethe login` again."
            raise NotLoggedIn(refused if token else client_config.missing_token(address)) from error


def chosen_competition(client: LetheClient, given: str | None) -> str:
    """Return the competition that is meant: named, remembered, or the only one there is."""
    if found := given or client_config.default_competition():
        return found
    slugs = [competition["slug"] for competition in client.competitions()]
    if len(slugs) == 1:
        return str(slugs[0])
    there = ", ".join(slugs) or "none that you may see"
    raise InvalidInput(f"Say which competition with --competition; there are: {there}")


class Output:
    """How a command answers. A command whose first parameter is one has the option --json."""

    options: ClassVar[dict[str, tuple[Any, Any]]] = {"as_json": (Json, False)}

    def __init__(
        self, stack: ExitStack, *, as_json: bool, url: str | None = None, competition: str | None = None
    ) -> None:
        self._stack, self.as_json, self.url, self.named = stack, as_json, url, competition

    def answer(self, found: Any, *, exit_status: int = 0) -> None:
        """With --json, print what was found as JSON and end the command."""
        if self.as_json:
            print_json(found)
            raise typer.Exit(exit_status)


class Server(Output):
    """The server that a command talks to. A command whose first parameter is one has the options --url and --json."""

    needs_token = True
    options: ClassVar[dict[str, tuple[Any, Any]]] = {"url": (Url, None), **Output.options}

    @cached_property
    def client(self) -> LetheClient:
        """The connection. Raises NotLoggedIn where a token is needed and there is none."""
        return self._stack.enter_context(connected(self.url, anonymous=not self.needs_token))


class PublicServer(Server):
    """The same, for a command that needs no account."""

    needs_token = False


class InCompetition(Server):
    """The same, for a command about one competition: it also has the option --competition."""

    options: ClassVar[dict[str, tuple[Any, Any]]] = {"competition": (Competition, None), **Server.options}

    @cached_property
    def slug(self) -> str:
        """The competition that is meant: named, remembered, or the only one there is."""
        return chosen_competition(self.client, self.named)


class PublicCompetition(InCompetition):
    """The same, for a command that needs no account."""

    needs_token = False


class Commands(typer.Typer):
    """Commands that may take an `Output` first."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        """Register a function as typer does, with the options that its `Output` brings."""
        register = super().command(name, **settings)
        return lambda function: register(with_options(function))


def with_options(command: Any) -> Any:
    """Return the command with its `Output`'s options in place of the `Output`; any other command as it is."""
    signature = inspect.signature(command)
    first, *others = signature.parameters.values() or (None,)
    kind = first and first.annotation
    if not (isinstance(kind, type) and issubclass(kind, Output)):
        return command

    @wraps(command)
    def run(*arguments: Any, **given: Any) -> Any:
        chosen = {name: given.pop(name, default) for name, (_, default) in kind.options.items()}
        with ExitStack() as stack:
            return command(kind(stack, **chosen), *arguments, **given)

    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in kind.options.items()
    ]
    vars(run)["__signature__"] = signature.replace(parameters=[*others, *options])
    run.__annotations__ = {each.name: each.annotation for each in (*others, *options)}
    return run


def the_only_match(given: str, known: Iterable[str], *, what: str) -> str:
    """Return the one id that begins with `given`. Raises InvalidInput for none or several.

    what: what the ids are of.
    """
    matching = sorted({each for each in known if each.startswith(given)})
    if not matching:
        raise InvalidInput(f"No id of the {what} begins with {given!r}")
    if len(matching) > 1:
        raise InvalidInput(f"{given!r} begins {len(matching)} ids of the {what}: {', '.join(matching[:5])}")
    return matching[0]


def value_of(text: str) -> Any:
    """Return what a text says as JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
