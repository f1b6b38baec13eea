"""Published results of a competition, fetched as its organisers do."""

from pathlib import Path

from lethe.client.bundle import unpack
from tests.support.instance import Instance


def fetch_bundle(server: Instance, slug: str, organiser: dict[str, str], folder: Path, **params: bool) -> Path:
    """Return the folder with the unpacked bundle."""
    answer = server.client.get(f"/api/v1/competitions/{slug}/bundle", headers=organiser, params=params)
    assert answer.status_code == 200, answer.text
    path = folder / "bundle.zip"
    path.write_bytes(answer.content)
    unpack(path, folder / slug)
    return folder / slug


def texts(folder: Path) -> str:
    """Return everything that stands in a bundle's files."""
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file())
