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
