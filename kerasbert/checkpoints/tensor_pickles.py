"""Interprets pickles that describe tensors, without using torch or the module `pickle`.

A pickle is a program. This interpreter supports only the instructions that state dicts need. They create dicts, lists,
tuples, strings, numbers, and immutable records that describe storages and tensors. Classes and functions that a pickle
names are never imported or called: known names are replaced by code in this file, and all others are refused. Anything
that `torch.load(weights_only=True)` refuses is refused here as well.
"""

import math
import pickletools
import re
from typing import NamedTuple

import numpy as np

# {storage class of torch: numpy dtype}. numpy has no bfloat16, which is the upper half of a float32.
_STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}
_FUNCTIONS = {
    ("collections", "OrderedDict"),
    ("torch", "Size"),
    ("torch._utils", "_rebuild_tensor"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
}
_MAX_RANK = 32
_MAX_INSTRUCTIONS = 400_000  # maximum number of instructions in a pickle; a tensor takes about 40


class RefusedPickle(ValueError):
    """Raised if a pickle names a class or function that is not needed for tensors."""


class _Name(NamedTuple):
    """The name of a class or function in a pickle."""

    module: str
    name: str


class Storage(NamedTuple):
    """Describes a contiguous array of numbers in the file: its key, dtype and number of elements."""

    key: str
    dtype: str
    size: int

    @property
    def num_bytes(self):
        return self.size * (2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize)


class StateDict(dict):
    """An OrderedDict in the pickle. The attributes that torch adds to it are dropped."""

    __slots__ = ()


class View(NamedTuple):
    """Describes a tensor as a view of a storage, with offset and strides in elements."""

    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


# === Pickles ===


def _is_count(value):
    return type(value) is int and 0 <= value < 2**63


def _view(storage, offset, shape, strides, requires_grad=False, hooks=None, metadata=None):
    """Returns the `View` of a tensor, given the arguments of torch's `_rebuild_tensor_v2`."""
    counts = type(shape) is tuple and type(strides) is tuple and all(map(_is_count, (offset, *shape, *strides)))
    if type(storage) is not Storage or not counts or len(shape) != len(strides) or len(shape) > _MAX_RANK:
        raise ValueError("a tensor whose storage, shape or strides are invalid")
    if type(requires_grad) is not bool or (requires_grad and storage.dtype[:2] not in ("<f", "bf")) or metadata:
        raise ValueError("a tensor with settings that no weight has")
    size, last = math.prod(shape), offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if size and last >= storage.size:
        raise ValueError(f"a tensor that ends at {last} in a storage of {storage.size} numbers")
    if size > storage.size or offset > storage.size:
        raise ValueError(f"a tensor that repeats numbers: {size} out of a storage of {storage.size} numbers")
    if not size and math.prod(n or 1 for n in shape) >= 2**31:
        raise ValueError(f"an empty tensor of shape {shape}")
    return View(storage, offset, shape, strides)


class PickleMachine:
    """Interprets the instructions of one pickle.

    Args:
        file: the file, which is read from its current position to the end of the pickle.
        path: path of the file, for messages.
        storages: dict {key: Storage}, to which the storages of this pickle are added.
    """

    def __init__(self, file, path, storages):
        self.file, self.path, self.storages = file, path, storages
        self.stack, self.outer, self.memo = [], [], {}
        self.copied = 0  # number of list items that were copied into dicts

    def run(self):
        """Returns the object that the pickle describes."""
        protocol = 2
        for number, (instruction, argument, _) in enumerate(pickletools.genops(self.file)):
            name = instruction.name
            if number == _MAX_INSTRUCTIONS:
                raise ValueError(f"a pickle of more than {_MAX_INSTRUCTIONS:,} instructions")
            if name == "PROTO":
                protocol = argument
            elif name == "STOP":
                if protocol > 2:
                    raise ValueError(f"pickle protocol {protocol}; torch.save writes 2 by default")
                return self.stack.pop()
            elif name in _VALUES:
                self.stack.append(_VALUES[name])
            elif name in _ARGUMENTS:
                self.stack.append(argument)
            elif name == "SHORT_BINSTRING":  # str of Python 2
                self.stack.append(argument.encode("latin-1").decode("utf-8"))
            elif name in ("BINPUT", "LONG_BINPUT"):
                self.memo[argument] = self.stack[-1]
            elif name == "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                self.stack.append(self.memo[argument])
            elif name in _INSTRUCTIONS:
                _INSTRUCTIONS[name](self)
            elif name == "GLOBAL":
                self.stack.append(self._named(*argument.split(" ", 1)))
            elif name == "STACK_GLOBAL":
                module, function = self._pop(2)
                self.stack.append(self._named(module, function))
            elif name != "FRAME":
                raise ValueError(f"the instruction {name}, which no tensor needs")

    def _pop(self, count):
        if len(self.stack) < count:
            raise ValueError("an instruction without its arguments")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def _pop_to_mark(self):
        items, self.stack = self.stack, self.outer.pop()
        return items

    def _named(self, module, name):
        found = _Name(module, name)
        if found not in _FUNCTIONS and (module != "torch" or name not in _STORAGES):
            quantized = ""
            if "qtensor" in str(name) or re.fullmatch(r"QU?Int\w+Storage", str(name)):
                quantized = " These are quantized weights, which kerasbert does not read."
            raise RefusedPickle(
                f"A weight file may contain only tensors. Received: {self.path}, whose pickle asks for "
                f"{module}.{name}, which was refused: it could run arbitrary code.{quantized} "
                "Get the weights as safetensors."
            )
        return found

    # The instructions, named after their effect on the stack.

    def mark(self):
        self.outer.append(self.stack)
        self.stack = []

    def make_tuple(self):
        items = self._pop_to_mark()
        self.stack.append(tuple(items))

    def make_list(self):
        self.stack.append([])

    def make_dict(self):
        self.stack.append({})

    def append(self, items=None):
        items = self._pop(1) if items is None else items
        if type(self.stack[-1]) is not list:
            raise ValueError("an append to an object that is not a list")
        self.stack[-1].extend(items)

    def set_items(self, items=None):
        items = self._pop(2) if items is None else items
        if not isinstance(self.stack[-1], dict) or len(items) % 2 or not all(type(key) is str for key in items[::2]):
            raise ValueError("items for something that is not a dict with str keys")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def build(self):
        """Drops the attributes of a state dict (versions of modules). Attributes of other objects are refused."""
        (state,) = self._pop(1)
        if type(self.stack[-1]) is not StateDict or type(state) not in (dict, StateDict):
            raise ValueError("attributes for something other than a state dict")

    def load_storage(self):
        (identifier,) = self._pop(1)
        if type(identifier) is not tuple or len(identifier) not in (5, 6) or identifier[5:] not in ((), (None,)):
            raise ValueError("an unknown kind of storage")
        kind, cls, key, location, size = identifier[:5]
        known = kind == "storage" and type(cls) is _Name and cls.name in _STORAGES
        if not known or type(key) is not str or type(location) is not str or not _is_count(size):
            raise ValueError("an unknown kind of storage")
        storage = Storage(key, _STORAGES[cls.name], size)
        if self.storages.setdefault(key, storage) != storage:
            raise ValueError(f"storage {key} with two sizes or types")
        self.stack.append(storage)

    def reduce(self):
        function, arguments = self._pop(2)
        if type(function) is not _Name or type(arguments) is not tuple:
            raise ValueError("a call of something that is not a function")
        counts, call = _CALLS.get(function.name, ((), None))
        if len(arguments) not in counts:
            raise ValueError(f"{function.name} with {len(arguments)} arguments")
        self.stack.append(call(self, *arguments))

    def _dict(self, pairs=()):
        if type(pairs) not in (list, tuple) or not all(
            type(pair) in (list, tuple) and len(pair) == 2 and type(pair[0]) is str for pair in pairs
        ):
            raise ValueError("an OrderedDict that is not made of pairs")
        self.copied += len(pairs)
        if self.copied > _MAX_INSTRUCTIONS:
            raise ValueError("more entries than state dicts have")
        return StateDict(pairs)

    def _size(self, numbers):
        if type(numbers) is not tuple or len(numbers) > _MAX_RANK:
            raise ValueError("an invalid torch.Size")
        return numbers

    def _parameter(self, tensor, requires_grad, hooks):
        if type(tensor) is not View or type(requires_grad) is not bool:
            raise ValueError("a parameter that is not a tensor")
        if requires_grad and tensor.storage.dtype[:2] not in ("<f", "bf"):
            raise ValueError("a parameter of integers")
        return tensor


_VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_ARGUMENTS = {"BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1", "BINUNICODE", "SHORT_BINUNICODE"}
_INSTRUCTIONS = {
    "MARK": PickleMachine.mark,
    "TUPLE": PickleMachine.make_tuple,
    "TUPLE1": lambda machine: machine.stack.append(tuple(machine._pop(1))),
    "TUPLE2": lambda machine: machine.stack.append(tuple(machine._pop(2))),
    "TUPLE3": lambda machine: machine.stack.append(tuple(machine._pop(3))),
    "EMPTY_LIST": PickleMachine.make_list,
    "EMPTY_DICT": PickleMachine.make_dict,
    "APPEND": PickleMachine.append,
    "APPENDS": lambda machine: machine.append(machine._pop_to_mark()),
    "SETITEM": PickleMachine.set_items,
    "SETITEMS": lambda machine: machine.set_items(machine._pop_to_mark()),
    "BUILD": PickleMachine.build,
    "BINPERSID": PickleMachine.load_storage,
    "REDUCE": PickleMachine.reduce,
}
# {function: (allowed numbers of arguments, implementation)}.
_CALLS = {
    "OrderedDict": ((0, 1), PickleMachine._dict),
    "Size": ((1,), PickleMachine._size),
    "_rebuild_tensor": ((4,), lambda machine, *arguments: _view(*arguments)),
    "_rebuild_tensor_v2": ((6, 7), lambda machine, *arguments: _view(*arguments)),
    "_rebuild_parameter": ((3,), PickleMachine._parameter),
}
