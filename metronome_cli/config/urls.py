"""Addresses as they may be shown and stored: what may be secret in them is left out."""

from __future__ import annotations

import urllib.parse


def shown(url: str) -> str:
    """An address without user, password, query and fragment; one without a scheme stays without."""
    schemed = "://" in url
    try:
        parts = urllib.parse.urlsplit(url if schemed else f"//{url}")
    except ValueError:
        return "(not an address)"
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return bare if schemed else bare.removeprefix("//")


def web_address(url: str) -> urllib.parse.SplitResult | None:
    """The parts of an HTTP address, `http` where it names no scheme; None for what is none."""
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets, or a port past 65535
        return None
    return parts if usable and url.isprintable() and not any(map(str.isspace, url)) else None
