"""Where a request comes from, for limits on how often somebody may do something."""

import ipaddress

from fastapi import Request


def get_client_address(request: Request) -> str:
    """Return what stands for one client: its address, or the /64 that a client with IPv6 has to itself."""
    address = request.client.host if request.client else "unknown"
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return address
