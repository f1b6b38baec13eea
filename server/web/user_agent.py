"""What a browser is called, from what it sends of itself."""

NAMES = {  # in this order: most also name the browsers that come later
    "Edg": "Edge",
    "OPR/": "Opera",
    "Firefox/": "Firefox",
    "FxiOS/": "Firefox",
    "Chrome/": "Chrome",
    "CriOS/": "Chrome",
    "Safari/": "Safari",
}
SYSTEMS = {
    "Windows": "Windows",
    "Android": "Android",
    "iPhone": "an iPhone",
    "iPad": "an iPad",
    "Macintosh": "a Mac",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


def browser_name(user_agent: str) -> str:
    """Return for instance `Firefox on Windows`; what is not recognised is shown as it was sent."""
    browser = _first(NAMES, user_agent)
    system = _first(SYSTEMS, user_agent)
    if not browser:
        return user_agent or "unknown browser"
    return f"{browser} on {system}" if system else browser


def _first(signs: dict[str, str], user_agent: str) -> str:
    return next((name for sign, name in signs.items() if sign in user_agent), "")
