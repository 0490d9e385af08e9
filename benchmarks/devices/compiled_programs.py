"""Reads the text of compiled programs (XLA's HLO): arithmetic, bytes moved, collectives, calls of attention kernels."""

import collections
import dataclasses
import functools
import math
import re

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4}
BYTES |= {"s64": 8, "u64": 8, "f64": 8}
INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.-]+) = (.+?) ([\w-]+)\((.*)")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
# Instructions that move nothing, or whose computations are counted by themselves.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional"}
FREE |= {"after-all", "partition-id", "replica-id"}
HALF = {"bf16", "f16"}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction: its name, shape and operation, and the text after the operation."""

    name: str
    shape: str
    operation: str
    rest: str

    @functools.cached_property
    def operands(self) -> list[str]:
        inside = self.rest.partition(")")[0]
        return re.findall(r"%([\w.-]+)", inside)

    def called(self) -> list[str]:
        """The names of the computations that the instruction calls."""
        return re.findall(r"(?:calls|body|condition|to_apply|branch_computations)=\{?%([\w.-]+)", self.rest)

    def attribute(self, pattern: str) -> str:
        found = re.search(pattern, self.rest)
        return found[1] if found else ""


def bytes_of(shape: str) -> int:
    return sum(BYTES.get(kind, 4) * math.prod(sizes_of(sizes)) for kind, sizes in ARRAY.findall(shape))


def sizes_of(text: str) -> list[int]:
    return [int(size) for size in text.split(",") if size]


def computations(text: str) -> dict[str, dict[str, Instruction]]:
    """Returns {computation: {name: Instruction}} of a program. The entry computation is named ENTRY."""
    found, inside = {}, None
    for line in text.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.-]+) .*\{$", line) if line[:1] not in (" ", "}", "") else None
        if header and "->" in line:
            inside = found["ENTRY" if header[1] else header[2]] = {}
        elif inside is not None and (instruction := INSTRUCTION.match(line)):
            inside[instruction[1]] = Instruction(*instruction.groups())
    return found


def launched(parts: dict) -> list[tuple[dict, Instruction]]:
    """Returns (computation, instruction) for what runs by itself: all but the insides of fusions and reductions."""
    names, left, found = set(), ["ENTRY"], []
    while left:
        name = left.pop()
        if name in names or name not in parts:
            continue
        names.add(name)
        for instruction in parts[name].values():
            found.append((parts[name], instruction))
            if instruction.operation in ("while", "call", "conditional", "async-start"):
                left.extend(instruction.called())
    return found


# === Matrix products and attention ===


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product: dtypes of its operands and of its result, operations, and where it comes from."""

    operands: tuple[str, str]
    result: str
    flops: int
    source: str

    @property
    def is_single(self) -> bool:
        """Whether an operand is float32. A float32 result alone is that of the accumulator."""
        return "f32" in self.operands


def products_in(computation: dict) -> list[Product]:
    found = []
    for instruction in computation.values():
        if instruction.operation not in ("dot", "convolution"):
            continue
        shapes = [ARRAY.search(computation[name].shape) for name in instruction.operands[:2]]
        result = ARRAY.search(instruction.shape)
        axes = sizes_of(instruction.attribute(r"lhs_contracting_dims=\{([\d,]*)\}"))
        contracted = math.prod(sizes_of(shapes[0][2])[axis] for axis in axes)
        flops = 2 * math.prod(sizes_of(result[2])) * contracted
        kinds = (shapes[0][1], shapes[1][1])
        found.append(Product(kinds, result[1], flops, instruction.attribute(r'op_name="([^"]*)"')))
    return found


def attention_flops(computation: dict, instruction: Instruction) -> int:
    """Operations of a call of an attention kernel that visits every key. 0 for other calls.

    The forward pass has two products of (q, d) and (d, k) for each row and head, the backward pass of cuDNN five, that
    of this package seven: it computes scores and their gradients once for the keys and once for the queries.
    """
    kind = attention_kind(instruction)
    if kind is None:
        return 0
    query, key = (ARRAY.search(computation[name].shape)[2] for name in instruction.operands[:2])
    batch, queries, heads, width = sizes_of(query)
    keys = sizes_of(key)[1]
    return kind[2] * 2 * batch * heads * queries * keys * width


def attention_kind(instruction: Instruction) -> tuple[str, str, int] | None:
    """Returns (kernel, "forward" or "backward", number of products), or None for other instructions."""
    if instruction.operation != "custom-call":
        return None
    target = instruction.attribute(r'custom_call_target="([^"]*)"')
    if target.startswith("__cudnn$fmha"):
        return ("cuDNN", "backward", 5) if target.endswith("Backward") else ("cuDNN", "forward", 2)
    if target == "__gpu$xla.gpu.triton":
        name = instruction.attribute(r'name = "([^"]*)"')
        return {"_forward_kernel": ("Pallas", "forward", 2), "_backward_kernel": ("Pallas", "backward", 7)}.get(name)
    return None


# === What moves ===


def bytes_moved(parts: dict, computation: dict, instruction: Instruction) -> int:
    """Bytes of the operands that an instruction reads, and of its result. Rows that are looked up count alone."""
    if instruction.operation in FREE or instruction.operation.endswith(("-done", "-update")):
        return 0
    result = bytes_of(instruction.shape)
    if instruction.operation in ("gather", "dynamic-slice", "slice"):
        return 2 * result
    inside = parts.get((instruction.called() or [""])[0], {}) if instruction.operation == "fusion" else {}
    read = 0
    for number, name in enumerate(instruction.operands):
        size = bytes_of(computation[name].shape) if name in computation else 0
        read += min(size, _looked_up(inside, number, size))
    return result + read


def _looked_up(inside: dict, number: int, size: int) -> int:
    """Bytes of one parameter of a fusion that are read: those of the results, if it is only looked up in."""
    name = next((n for n, x in inside.items() if x.operation == "parameter" and x.rest.startswith(f"{number})")), None)
    users = [x for x in inside.values() if name in x.operands[:1] or name in x.operands[1:]] if name else []
    if not users or any(x.operation not in ("gather", "dynamic-slice", "slice") for x in users):
        return size
    return sum(bytes_of(x.shape) for x in users)


def seconds_of(parts: dict, chip: dict, attended: float) -> dict:
    """Totals of operations, bytes, and the time that a roofline allows.

    Kernels run one after another, and each takes as long as its operations at the peak or its bytes at the bandwidth of
    the memory, whichever is longer.

    Args:
        chip: "peak" in FLOP/s of half precision and "bandwidth" in bytes/s.
        attended: share of the keys that the queries of attention kernels attend to.
    """
    flops = moved = seconds = 0.0
    for computation, instruction in launched(parts):
        called = instruction.called()[:1] if instruction.operation == "fusion" else []
        here = sum(product.flops for name in called for product in products_in(parts.get(name, {})))
        if instruction.operation == "dot":
            here = products_in({**computation, "dot": instruction})[-1].flops
        here += attention_flops(computation, instruction) * attended
        size = bytes_moved(parts, computation, instruction)
        flops, moved = flops + here, moved + size
        seconds += max(here / chip["peak"], size / chip["bandwidth"])
    return {"flops": flops, "moved": moved, "seconds": seconds}


def collectives_of(text: str, vocabulary: int) -> dict:
    """{kind: number}, {kind_bytes: bytes of whole arrays}, and the number of gathered arrays with the vocabulary."""
    count, size, whole, seen, computation = collections.Counter(), collections.Counter(), 0, set(), ""
    for line in text.splitlines():
        if line.endswith("{"):
            computation = line
        instruction = INSTRUCTION.match(line)
        kind = instruction[3].removesuffix("-start") if instruction else None
        if kind not in COLLECTIVES:
            continue
        chain = re.search(r"channel_id=\d+|$", instruction[4])[0] if "chain_id=" in instruction[4] else None
        if chain in seen:  # a part of a collective that overlaps with arithmetic
            continue
        seen |= {chain} if chain else set()
        shape = instruction[2]
        arrays = ARRAY.findall(shape)
        if instruction[3].endswith("-start") and shape.startswith("(") and kind != "all-reduce":
            arrays = [array for array in arrays if array[1]]  # without the counters of the transfer
            arrays = arrays[len(arrays) // 2 :]  # operands and results; an all-reduce has results only
        whole += kind == "all-gather" and any(str(vocabulary) in sizes.split(",") for _, sizes in arrays)
        # The compiler for TPUs writes a reduce-scatter as an all-reduce that it fuses with the choice of a part.
        kind = "reduce-scatter" if computation.startswith("%all-reduce-scatter") else kind
        count[kind] += 1
        size[kind] += bytes_of(",".join(f"{kind_of}[{sizes}]" for kind_of, sizes in arrays))
    named = {kind.replace("-", "_"): kind for kind in COLLECTIVES}
    return {
        **{name: count[kind] for name, kind in named.items()},
        **{f"{name}_bytes": size[kind] for name, kind in named.items()},
        "vocabulary_gathers": whole,
    }


def transfers_in(parts: dict) -> int:
    """Number of callbacks and of transfers between the host and the device."""
    hosts = ("infeed", "outfeed", "send", "recv")
    found = 0
    for computation in parts.values():
        for instruction in computation.values():
            target = instruction.attribute(r'custom_call_target="([^"]*)"')
            found += instruction.operation in hosts or "callback" in target or "S(5)" in instruction.shape
    return found
