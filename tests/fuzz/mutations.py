"""Seeded damage to files: of bytes, of json, and of the pickle inside a zip."""

import copy
import io
import json
import pickletools
import struct
import zipfile

INTERESTING = (0, 1, -1, 7, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, -(2**31))


def mutate_bytes(content, rng):
    """One to four edits: bits, bytes, whole numbers, slices cut, doubled, moved or zeroed, the end cut off."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        size = max(len(content), 1)
        place = rng.randrange(size)
        length = rng.choice((1, 2, 4, 8, 16, 100, size // 3 + 1))
        kind = rng.randrange(10)
        if not content:
            content = bytearray(rng.randbytes(rng.randrange(1, 50)))
        elif kind == 0:
            content[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            content[place] = rng.randrange(256)
        elif kind == 2:
            number, (letter, bits) = rng.choice(INTERESTING), rng.choice((("H", 16), ("I", 32), ("Q", 64)))
            packed = struct.pack(rng.choice("<>") + letter, number % 2**bits)
            content[place : place + len(packed)] = packed
        elif kind == 3:
            del content[place : place + length]
        elif kind == 4:
            content[place:place] = content[place : place + length]
        elif kind == 5:
            content[place:place] = rng.randbytes(min(length, 100))
        elif kind == 6:
            del content[place:]
        elif kind == 7:
            content[place : place + length] = bytes(len(content[place : place + length]))
        elif kind == 8:
            piece = content[place : place + length]
            del content[place : place + length]
            other = rng.randrange(len(content) + 1)
            content[other:other] = piece
        else:  # a digit, so that numbers in text change without it breaking
            digits = [i for i, byte in enumerate(content[:100_000]) if 48 <= byte <= 57]
            if digits:
                content[rng.choice(digits)] = rng.choice(b"0123456789-e.")
    return bytes(content)


# === Json ===

VALUES = (
    *(None, True, False, 0, 1, -1, 2, 3, 0.5, 1.5, -0.5, 2**31, 2**31 - 1, 2**63, 10**11, 10**30, 10**400),
    *(float("nan"), float("inf"), "", "x", "0", "gelu", "../x", "/etc/passwd", "\0", "\ud800", "é" * 300, "a" * 5_000),
    *([], {}, [[]], [None], ["x"], [1, 2], {"x": 1}, {"": {}}, {"content": 3}, {"0": "a"}, [10**11], ["a", "a"]),
)


def mutate_json(text, rng):
    """A value replaced, removed, added, renamed or moved; sometimes the bytes themselves, or a nest without end."""
    chance = rng.random()
    if chance < 0.15:
        return mutate_bytes(text, rng)
    if chance < 0.17:
        opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
        depth = rng.choice((100, 5_000, 200_000))
        return (opening * depth + "1" + closing * depth).encode()
    tree = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = _place(tree, rng)
        if holder is None:
            tree = copy.deepcopy(rng.choice(VALUES))
            break
        kind = rng.randrange(6)
        if kind <= 2:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 3:
            del holder[key]
        elif kind == 4:
            other, place = _place(tree, rng)
            if other is not None and place in (other if isinstance(other, dict) else range(len(other))):
                holder[key] = json.loads(json.dumps(other[place]))
        elif isinstance(holder, dict):
            holder[rng.choice(("x", "", f"{key}2", str(rng.choice(INTERESTING))))] = holder.pop(key)
        else:
            holder.insert(key, copy.deepcopy(rng.choice(VALUES)))
    return json.dumps(tree, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _place(tree, rng):
    """A place in a tree, (dict or list, key or index), drawn level by level; (None, None) where there is none."""
    holder, key = None, None
    while isinstance(tree, (dict, list)) and tree and (holder is None or rng.random() < 0.75):
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        # Long vocabularies are all alike: the first ones and the last are as good as the others.
        key = rng.choice([*keys[:20], *keys[-5:]])
        holder, tree = tree, tree[key]
    return holder, key


# === Zips with a pickle ===

OPCODES = b"(.012FGIJKLMNPQRSTUVX]abcdeghijlopqrstu}\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x93\x94\x95Bc"
ATTACKS = (
    b"}X\x05\x00\x00\x00shapeJ\xff\xff\xff\x00sb",
    b"}X\x07\x00\x00\x00strides(J\xff\xff\xff\x7fK\x01tsb",
    b"N}X\x0c\x00\x00\x00__defaults__)s\x86b",
    b"cbuiltins\neval\n",
    b"cos\nsystem\n(X\x04\x00\x00\x00truetR",
    b")\x81",
    b"ctorch\nSize\n(K\x02K\x03t\x85R",
)


def mutate_pickle(content, rng):
    """Numbers and instructions of a pickle changed one by one, or an attack put between two of them."""
    if rng.random() < 0.3:
        return mutate_bytes(content, rng)
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        try:
            places = [place for _, _, place in pickletools.genops(bytes(content))]
        except Exception:
            return bytes(content)
        number = rng.randrange(len(places) - 1) if len(places) > 1 else 0
        place, end = places[number], places[min(number + 1, len(places) - 1)]
        kind = rng.randrange(6)
        if kind == 0:
            content[place] = rng.choice(OPCODES)
        elif kind == 1:
            content[place:place] = rng.choice(ATTACKS)
        elif kind == 2:
            del content[place:end]
        elif kind == 3:
            content[place:place] = content[place:end]
        else:
            numbers = [p for p in places if content[p : p + 1] in (b"K", b"M", b"J", b"\x8a")]
            if numbers:
                place = rng.choice(numbers)
                end = next((p for p in places if p > place), len(content))
                content[place:end] = b"J" + struct.pack("<i", (rng.choice(INTERESTING) + 2**31) % 2**32 - 2**31)
    return bytes(content)


def mutate_zip(content, rng):
    """The bytes of the archive, or one of its entries in an archive that is whole otherwise."""
    chance = rng.random()
    if chance < 0.35:
        return mutate_bytes(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    target = io.BytesIO()
    chosen = rng.randrange(len(entries)) if chance > 0.85 else 0
    compression = rng.choice((zipfile.ZIP_STORED,) * 15 + (zipfile.ZIP_DEFLATED,))
    with zipfile.ZipFile(target, "w", compression) as archive:
        for number, (name, data) in enumerate(entries):
            if number == chosen:
                if chance > 0.95:
                    name = rng.choice((f"{name}x", f"x/{name}", entries[0][0], name.upper()))
                else:
                    data = mutate_pickle(data, rng) if name.endswith(".pkl") else mutate_bytes(data, rng)
            archive.writestr(name, data)
    return target.getvalue()
