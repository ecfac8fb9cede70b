"""Addresses as they may be shown and stored: what may be secret in them is left out."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence

from metronome_cli.core.errors import UsageError


def shown(url: str) -> str:
    """An address without user, password, query and fragment; one without a scheme stays without."""
    schemed = "://" in url
    try:
        parts = urllib.parse.urlsplit(url if schemed else f"//{url}")
    except ValueError:
        return _malformed(url)
    path = re.sub(
        r"[^/]*@", "", parts.path
    )  # of an address with a slash too few, user and password are there
    netloc = parts.netloc.rpartition("@")[2]
    bare = parts._replace(netloc=netloc, path=path, query="", fragment="").geturl()
    return bare if schemed else bare.removeprefix("//")


def _malformed(url: str) -> str:
    """The same of what has no parts to go by; nothing of it where a user's name might go on past a ? or a #."""
    scheme, schemed, rest = url.rpartition("://")
    place, *more = re.split(r"[?#]", rest, maxsplit=1)
    return (
        "(not an address)"
        if any("@" in text for text in more)
        else scheme + schemed + place.rpartition("@")[2]
    )


def parts_of(url: str, flag: str, schemes: Sequence[str], hint: str) -> urllib.parse.SplitResult:
    """An address in parts; one without a scheme has the first of `schemes`. Raises UsageError, naming the flag."""
    if why := _trouble(url, schemes):
        raise UsageError(f"{flag} {shown(url)!r} is not an address: {why}", hint=hint)
    return urllib.parse.urlsplit(url if "://" in url else f"{schemes[0]}://{url}")


def _trouble(url: str, schemes: Sequence[str]) -> str | None:
    """What is wrong with it; None where nothing is."""
    if not url.isprintable() or any(map(str.isspace, url)):
        return "there are blanks or control codes in it"
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"//{url}")
    except ValueError:
        return "its brackets do not hold an IPv6 address"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/(?!/)", url):
        return "two slashes follow the scheme"
    if parts.scheme and parts.scheme not in schemes:
        return f"its scheme is {parts.scheme!r}, not one of {', '.join(schemes)}"
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return "its port is not a number from 1 to 65535"
    return _host_trouble(parts.hostname)


def _host_trouble(host: str | None) -> str | None:
    if not host:
        return "it names no host"
    try:
        host.encode("idna")
    except UnicodeError:
        return "its host has an empty part, or one of more than 63 characters"
    return None
