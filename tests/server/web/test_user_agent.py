"""Browsers are named as people know them."""

import pytest

from server.web.rendering import browser_name


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64) Chrome/126.0 Safari/537.36", "Chrome on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/126.0 Safari/537.36 Edg/126.0", "Edge on Windows"),
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:127.0) Gecko/20100101 Firefox/127.0", "Firefox on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Safari/604.1", "Safari on an iPhone"),
        ("Mozilla/5.0 (Linux; Android 14; Pixel 8) Chrome/126.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", "unknown browser"),
    ],
)
def test_a_browser_is_named_with_its_system(sent: str, name: str) -> None:
    assert browser_name(sent) == name
