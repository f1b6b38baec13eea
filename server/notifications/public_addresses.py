"""Which addresses are of the public internet: an organiser's webhook reaches nothing inside the operator's network."""

import ipaddress

UNICAST = ipaddress.ip_network("2000::/3")  # all that is given to hosts of the internet
TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # the addresses of IPv4 where a network has none of its own
LOCAL_NAMES = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp")


def names_private_host(host: str) -> bool:
    """Return whether a host is private by its name alone: an address, or a name that only a local network knows."""
    try:
        return not is_public(host)
    except ValueError:
        name = host.rstrip(".").lower()
        return "." not in name or name.rpartition(".")[2] in LOCAL_NAMES


def is_public(address: str) -> bool:
    """Return whether an address is one host's of the public internet, also where it stands for one of IPv4.

    Python calls whatever is not reserved for something else global: groups of hosts, and networks given up long ago.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed in TRANSLATED:
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
        if parsed not in UNICAST or parsed.sixtofour or parsed.teredo:
            return False
    return parsed.is_global and not parsed.is_multicast
