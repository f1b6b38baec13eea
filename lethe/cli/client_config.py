"""What the command line remembers: the server's address and the competition, and apart from them the token.

Both lie in the platform's folder for configuration. The token goes to the system's keyring where the extra
`keyring` is installed and a keyring answers, else to a file that its owner alone may read.
"""

import json
import os
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from types import ModuleType

import platformdirs

from lethe.errors import InvalidInput
from lethe.text_files import read_text

URL_VARIABLE = "LETHE_URL"
TOKEN_VARIABLE = "LETHE_TOKEN"  # noqa: S105 - the variable's name
COMPETITION_VARIABLE = "LETHE_COMPETITION"
HOME_VARIABLE = "LETHE_HOME"
KIT_FILE = "lethe.json"  # in a folder that `lethe init` made
DEFAULT_URL = "http://127.0.0.1:8000"
SERVICE = "lethe"


@dataclass(frozen=True)
class Remembered:
    """The content of config.json, or of lethe.json in a starter kit's folder."""

    url: str = ""
    competition: str = ""


@dataclass(frozen=True)
class Address:
    """A server's address. file: the lethe.json that names it, of which the user may know nothing; None: the user's own
    choice, in which case tokens and passwords may go there."""

    url: str
    file: Path | None = None


def config_folder() -> Path:
    return Path(platformdirs.user_config_dir("lethe"))


def find_server(given: str | None = None) -> Address:
    """Return the address to talk to: given, LETHE_URL, the kit's, the remembered one, this machine's instance."""
    if own := given or os.environ.get(URL_VARIABLE):
        return Address(_checked(own))
    own = _checked(_remembered().url or _own_instance() or DEFAULT_URL)
    kit_file = _kit_file()
    url = _checked(_read(kit_file).url or own) if kit_file else own
    return Address(url, None if url == own else kit_file)


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"the server's address must begin with http:// or https://, was {url!r}")
    return url.rstrip("/")


def default_competition() -> str:
    """Return the competition that is meant where none is named; empty if nothing says."""
    if named := os.environ.get(COMPETITION_VARIABLE):
        return named
    kit_file = _kit_file()
    return (kit_file and _read(kit_file).competition) or _remembered().competition


def remember(**values: str) -> None:
    """Keep values of config.json."""
    known = asdict(_remembered()) | values
    _write_private(config_folder() / "config.json", json.dumps(known, indent=2))


def get_token(server: Address) -> str | None:
    """Return the token for a server: LETHE_TOKEN where it belongs to this server, the keyring's, or the file's.

    LETHE_TOKEN belongs to LETHE_URL, if that is set; else to whatever address the user chose, never to one that only
    a file in a folder names.
    """
    url = os.environ.get(URL_VARIABLE)
    is_its_own = server.url == _checked(url) if url else server.file is None
    if (token := os.environ.get(TOKEN_VARIABLE)) and is_its_own:
        return token
    keyring = _keyring()
    if keyring is not None and (kept := keyring.get_password(SERVICE, server.url)):
        return str(kept)
    return _tokens().get(server.url)


def missing_token(server: Address) -> str:
    """Return what to do where there is no token for a server."""
    if not os.environ.get(TOKEN_VARIABLE):
        return f"There is no token for {server.url}. Run `lethe login`, or set {TOKEN_VARIABLE}."
    named = f", which {server.file} names" if server.file else f": it belongs to {os.environ.get(URL_VARIABLE)}"
    return (
        f"{TOKEN_VARIABLE} is not sent to {server.url}{named}. Run `lethe login {server.url}`, or set {URL_VARIABLE} "
        "to the server that gave the token."
    )


def keep_token(url: str, token: str) -> str:
    """Store a token. Return a description of where it is stored."""
    keyring = _keyring()
    if keyring is not None:
        keyring.set_password(SERVICE, url, token)
        return "the system's keyring"
    path = _tokens_file()
    _write_private(path, json.dumps(_tokens() | {url: token}, indent=2))
    return str(path)


def forget_token(url: str) -> bool:
    """Forget the token for a server. Return whether there was one."""
    keyring, known = _keyring(), _tokens()
    kept = keyring is not None and keyring.get_password(SERVICE, url) is not None
    if kept and keyring is not None:
        keyring.delete_password(SERVICE, url)
    if url in known:
        del known[url]
        _write_private(_tokens_file(), json.dumps(known, indent=2))
        return True
    return kept


def instance_home() -> Path:
    """Return the folder where this machine's own instance lives: LETHE_HOME, else ~/.lethe."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".lethe")


def _own_instance() -> str:
    try:
        return str(json.loads((instance_home() / "instance.json").read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError):
        return ""


def _kit_file() -> Path | None:
    """Return the starter kit's file in the current folder, or in the next one above that has one."""
    here = Path.cwd()
    return next((folder / KIT_FILE for folder in (here, *here.parents) if (folder / KIT_FILE).is_file()), None)


def _remembered() -> Remembered:
    return _read(config_folder() / "config.json")


def _read(path: Path) -> Remembered:
    values = _json_object(path)
    return Remembered(**{field.name: str(values.get(field.name) or "") for field in fields(Remembered)})


def _tokens_file() -> Path:
    return config_folder() / "tokens.json"


def _tokens() -> dict[str, str]:
    return {str(url): str(token) for url, token in _json_object(_tokens_file()).items()}


def _json_object(path: Path) -> dict[str, object]:
    try:
        values = json.loads(read_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}. Repair it or remove it") from error
    if not isinstance(values, dict):
        raise InvalidInput(f"{path} must hold a JSON object. Repair it or remove it")
    return values


def _keyring() -> ModuleType | None:
    """Return the keyring module if it is installed and has a working back-end."""
    try:
        keyring = import_module("keyring")
        usable = getattr(keyring.get_keyring(), "priority", 0) >= 1
    except (ImportError, RuntimeError):
        return None
    return keyring if usable else None


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
