"""How the templates of pages are read: autoescape is on, and an unknown name in one is an error."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


def new_environment(folder: Path) -> Environment:
    """Return an environment for the templates of a folder; filters are the caller's."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
