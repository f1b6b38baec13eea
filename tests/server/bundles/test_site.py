"""Pages of published results: they ask no network for anything."""

from server.bundles.site import environment


def test_pictures_of_other_hosts_are_links() -> None:
    html = environment().filters["markdown"]("A prize: ![a mug](https://example.org/mug.png)")
    assert '<a href="https://example.org/mug.png">a mug</a>' in html
    assert "<img" not in html
