"""Changed copies of healthy inputs, as hypothesis strategies: bytes, text and trees.

Every value is drawn by hypothesis, so that one that breaks something is made small, and drawn again from its seed.
"""

import copy
import json

from hypothesis import strategies as st

# What stands at the edges of the integers in headers, and of the numbers in text.
EDGES = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63 - 1,
    2**64 - 1,
]
NUMBERS = [
    "0",
    "-1",
    "1e308",
    "1e999",
    "-0",
    "nan",
    "inf",
    ".5",
    "5.",
    "1_000",
    "0x10",
    "9" * 400,
    "1e-400",
    "٣",
]
MARKS = [
    "\x00", "\x1b[31m", "\ud800", "\u202e", "'", '"', "{", "}", "[", "]", ":", "#", "&a", "*a", "!!python/x", "<<", "|",
    ">", "%", "\n", "\r", "\t", ",", "-", "- ", "~", "null", "true", "=", "/", "\\", "é", "😀", "\ufeff",
]  # fmt: skip
KINDS = ["flip", "write", "drop", "copy", "insert", "cut", "edge", "join"]

steps = st.tuples(
    st.sampled_from(KINDS), st.integers(0, 2**16), st.integers(0, 2**16), st.binary(min_size=1, max_size=8)
)


def mutated_bytes(seeds, near=None):
    """One of the seeds after up to six changes; `near`: most of them among its first bytes."""
    return st.builds(
        _change_bytes, st.sampled_from(seeds), st.lists(steps, min_size=1, max_size=6), st.just(near)
    )


def _change_bytes(seed, changes, near):
    data = bytearray(seed)
    for kind, where, size, payload in changes:
        span = len(data) if near is None or size % 4 == 0 else min(near, len(data))
        at = where % (span + 1)
        length = size % 64
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << (size % 8)
        elif kind == "write":
            data[at : at + len(payload)] = payload
        elif kind == "drop":
            del data[at : at + length]
        elif kind == "copy":
            data[at:at] = data[at : at + length] * (1 + size % 3)
        elif kind == "insert":
            data[at:at] = payload
        elif kind == "cut":
            del data[at:]
        elif kind == "edge":
            width = (1, 2, 4, 8)[size % 4]
            value = EDGES[length % len(EDGES)] & ((1 << 8 * width) - 1)
            data[at : at + width] = value.to_bytes(width, ("little", "big")[size // 4 % 2])
        elif kind == "join":
            data[at:at] = seed[where % (len(seed) + 1) :][:2048]
    return bytes(data)


words = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(MARKS), st.text(max_size=12))
text_steps = st.tuples(
    st.sampled_from(["insert", "drop", "copy", "swap", "number", "cut", "line"]),
    st.integers(0, 2**16),
    st.integers(0, 2**16),
    words,
)


def mutated_text(seeds):
    """One of the seeds after up to six changes."""
    return st.builds(_change_text, st.sampled_from(seeds), st.lists(text_steps, min_size=1, max_size=6))


def _change_text(text, changes):
    for kind, where, size, word in changes:
        at, length = where % (len(text) + 1), size % 40
        if kind == "insert":
            text = text[:at] + word + text[at:]
        elif kind == "drop":
            text = text[:at] + text[at + length :]
        elif kind == "copy":
            text = text[:at] + text[at : at + length] * (1 + size % 4) + text[at:]
        elif kind == "swap":
            text = text[:at] + word + text[at + len(word) :]
        elif kind == "number":
            text = _number_at(text, at, word)
        elif kind == "cut":
            text = text[:at]
        else:
            lines = text.splitlines(keepends=True)
            if lines:
                lines.insert(size % (len(lines) + 1), lines.pop(where % len(lines)))
                text = "".join(lines)
    return text


def _number_at(text, at, word):
    """The next run of digits from there on, replaced."""
    start = next((i for i in range(at, len(text)) if text[i].isdigit()), None)
    if start is None:
        return text + word
    stop = next((i for i in range(start, len(text)) if not text[i].isdigit()), len(text))
    return text[:start] + word + text[stop:]


small_trees = st.recursive(
    st.none() | st.integers(-5, 5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(
        [0, -1, 10**30, -1e300, 1e-300, 1e300, "", "\x00\x1b<b>", [], {}, [[]], {"a": {}}, [None]]
    ),
    st.sampled_from(["80ms", "2GiB", "50%", "window(64, 4)"]),
    st.text(max_size=20),
    st.floats(allow_nan=False, allow_infinity=False),
    small_trees,
)
tree_steps = st.tuples(
    st.sampled_from(["value", "drop", "add", "double"]),
    st.integers(0, 2**16),
    odd_values,
    st.text(max_size=8),
)


def mutated_trees(seeds):
    """One of the seeds, plain data, after up to five changes at any of its places."""
    return st.builds(_change_tree, st.sampled_from(seeds), st.lists(tree_steps, min_size=1, max_size=5))


def _change_tree(seed, changes):
    tree = copy.deepcopy(seed)
    for kind, where, value, name in changes:
        places = list(_places(tree))
        if not places:
            return value
        holder, key = places[where % len(places)]
        if kind == "value":
            holder[key] = copy.deepcopy(value)
        elif kind == "drop":
            del holder[key]
        elif kind == "add" and isinstance(holder, dict):
            holder[name] = copy.deepcopy(value)
        elif kind == "double" and isinstance(holder, list) and len(holder) < 100:
            holder.append(copy.deepcopy(holder[key]))
    return tree


def _places(tree):
    for key, value in list(
        tree.items() if isinstance(tree, dict) else enumerate(tree[:20]) if isinstance(tree, list) else ()
    ):
        yield tree, key
        yield from _places(value)


def json_text(trees):
    """As a file has them."""
    return trees.map(lambda tree: json.dumps(tree, ensure_ascii=False, default=str))
