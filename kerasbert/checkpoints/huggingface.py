"""Loads and saves weights in the Hugging Face layout, which each family describes by tables."""

import logging
import re

import keras
import numpy as np

from ..backend.arrays import shared
from ..core.caller import warn_caller
from ..core.lora import merged_kernels
from ..core.variables import parts_of, paths_of_variables
from ..core.weight_names import Heads, Part, Tensor
from .weight_checks import check_not_quantized, unfit_numbers

log = logging.getLogger("kerasbert")

_LEAVES = {
    "kernel": "weight",
    "gamma": "weight",
    "scale": "weight",
    "embeddings": "weight",
    "bias": "bias",
    "beta": "bias",
}
_IGNORED = re.compile(
    r"(^|\.)(position_ids|token_type_ids|embeddings\.token_type_ids|inv_freq|h\.\d+\.attn\.(masked_)?bias)$"
)
# What PyTorch's wrappers (DataParallel, compile, FSDP) put into the names of tensors.
_WRAPPERS = re.compile(r"^(module\.)+|(?<![^.])(_orig_mod|_fsdp_wrapped_module)\.(module\.)?")
# Layers of tasks that are not part of any family's layout. They are stored under our paths in a separate file.
_EXTRA_PARTS = {"answer_network", "feature_head", "tasks"}
_LABELED_PARTS = (["kerasbert", "answer_network"], ["kerasbert", "feature_head"])

# === Names ===


# Weights that are not saved: LoRA products are merged, and the state of float8 is measured anew by training.
_UNSAVED = re.compile(r"/(lora_kernel_[ab]|(inputs|kernel|outputs_grad)_amax_history|(inputs|outputs_grad)_scale)$")


def named_variables(model, apart=False):
    """Returns the result of `paths_of_variables` for the weights of a model that are saved.

    Args:
        model: a backbone, objective or task.
        apart: whether those of its layers in `KEPT_APART` are included.
    """
    passing = (*getattr(model, "TRAINING_ONLY", ()), *(() if apart else getattr(model, "KEPT_APART", ())))
    named = paths_of_variables(model)
    float8 = {path.replace("/inputs_scale", "/kernel_scale") for path in named if path.endswith("/inputs_scale")}
    kept = (p for p in named if p.split("/")[0] not in passing and not _UNSAVED.search(p) and p not in float8)
    return {path: named[path] for path in kept}


def stored_as(family, path, as_module=False):
    """Returns (entry of the family's table, stored name) for the path of a variable.

    The result is (None, None) if the table has no entry for the variable. With `as_module`, the name is the one in the
    model of transformers, in which layers can be apart that are stored together.
    """
    names = {**family.huggingface.names, **(family.huggingface.modules if as_module else {})}
    if path.split("/")[0] in _EXTRA_PARTS:
        name = f"kerasbert.{path.replace('/', '.')}"
        return Tensor(name), name
    layer, _, leaf = path.rpartition("/")
    for target, suffix in ((path, ""), (layer, "." + _LEAVES.get(leaf, leaf))):
        for ours, entry in names.items():
            numbers = _match(ours, target)
            if numbers is not None:
                name = entry if isinstance(entry, str) else entry.name
                suffix = "" if isinstance(entry, (Tensor, Heads)) else suffix
                return entry, name.format(**numbers) + suffix
    return None, None


def _match(pattern, path):
    """Returns {"i": number, ...} if a path matches a pattern with `{i}` and `{j}` for numbers, otherwise None."""
    found = re.fullmatch(re.sub(r"\\\{(\w)\\\}", r"(?P<\1>\\d+)", re.escape(pattern)), path)
    return None if found is None else found.groupdict()


def is_head(family, path):
    """Whether a variable belongs to a head, the pooler or another optional layer, which files may lack."""
    return path.split("/")[0] in {*family.heads, "pooler", *family.huggingface.optional, *_EXTRA_PARTS}


def to_ours(entry, array, leaf, config):
    """Converts a stored array to the value of a variable.

    Args:
        entry: the entry of the family's table.
        array: the stored numpy array.
        leaf: last part of the variable's path, such as "kernel".
        config: the config of the backbone.
    """
    if isinstance(entry, (Tensor, Heads)):
        return entry.load(array)
    if leaf == "kernel" and not (isinstance(entry, Part) and not entry.transposed):
        array = np.moveaxis(array, 0, -1) if array.ndim == 2 else np.transpose(array, (2, 1, 0))
    if isinstance(entry, Part):
        array = array[..., entry.outputs(array.shape[-1], config)]
    return array


def to_theirs(entry, array, leaf, config):
    """Converts the value of a variable to the stored array; the inverse of `to_ours`.

    For a `Part`, the result is this part of the stored array.
    """
    if isinstance(entry, Heads):
        return entry.save(array, config.num_heads)
    if isinstance(entry, Tensor):
        return entry.save(array)
    if leaf == "kernel" and not (isinstance(entry, Part) and not entry.transposed):
        array = np.moveaxis(array, -1, 0) if array.ndim == 2 else np.transpose(array, (2, 1, 0))
    return array


# === Weights ===


class StoredWeights:
    """The tensors of a folder under the names that the family's table uses.

    Prefixes are removed, older names are replaced, and only one name is kept for tensors that have several.

    Args:
        family: the `Family`.
        files: a `TensorFiles`, or an object with the same methods.
    """

    holds_all = False  # whether the weights of `KEPT_APART` are here, too
    left_out: str | None = None  # the kind of head whose weights are ignored

    def __init__(self, family, files):
        self.family = family
        self.files = files
        self.num_elements = files.num_elements
        check_not_quantized(files.keys(), files.folder)
        self.prefix = f"{family.huggingface.prefix}." if family.huggingface.prefix else ""
        older = tuple(f"{prefix}." for prefix in family.huggingface.older_prefixes)
        self.prefixes = (self.prefix, *older)
        found = {_WRAPPERS.sub("", name): name for name in files.keys()}
        wrapped = [stored for name, stored in found.items() if name != stored]
        if wrapped:
            log.warning("%s: names without the prefixes of wrappers, as in %s", files.folder, wrapped[0])
        for prefix in older:
            found = {re.sub(f"^{re.escape(prefix)}", self.prefix, name): stored for name, stored in found.items()}
        self.bare = not any(name.startswith(self.prefix) for name in found)
        self.names = {self._canonical(name): stored for name, stored in found.items() if not _IGNORED.search(name)}
        self.untied = []
        for alias, name in family.huggingface.tied.items():
            alias, name = self._canonical(alias), self._canonical(name)
            stored = self.names.pop(alias, None)
            if stored is None:
                continue
            if name in self.names and not np.array_equal(files.read(stored), files.read(self.names[name])):
                self.untied.append(stored)
            self.names.setdefault(name, stored)

    def _canonical(self, name):
        name = name.removeprefix(self.prefix)
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)

    def prepare(self, model):
        """Called before the weights are loaded into a model. The variables of the model have their final dtypes."""

    def locate(self, path):
        return stored_as(self.family, path)

    def leave_out(self, kind):
        """Ignores the tensors of one kind of head, because they were trained for other labels."""
        before = len(self.names)
        for path, entry in self.family.huggingface.names.items():
            theirs = entry if isinstance(entry, str) else entry.name
            if path.split("/")[0] == kind:
                self.names = {n: s for n, s in self.names.items() if n != theirs and not n.startswith(f"{theirs}.")}
        self.names = {n: s for n, s in self.names.items() if n.split(".")[:2] not in _LABELED_PARTS}
        self.left_out = kind if len(self.names) < before else None

    @property
    def config_fields(self):
        """Returns {config field: value} for the fields that can only be determined from the weights."""
        fields = self.family.huggingface.fields
        return {} if fields is None else fields(self)

    def __contains__(self, name):
        return name in self.names

    def read(self, name):
        return self.files.read(self.names[name])


def implied_by(backbone):
    """Returns the stored tensors for which the backbone has no variables.

    The result is {stored name: the stored name that it duplicates, or its value}.
    """
    implied = backbone.family.huggingface.implied
    return {} if implied is None else implied(backbone.config)


def load_weights(model, stored, allow_nan=False):
    """Loads the stored weights into a model.

    Each variable of the backbone must have a stored tensor, and each stored tensor of the backbone must be used. Stored
    tensors of heads that the model does not have are logged in one line, and those that are of no head of the family in
    a line that is a warning. Heads or poolers that are not stored are initialized randomly, with a warning.

    Args:
        model: a backbone, objective or task.
        stored: a `StoredWeights`.
        allow_nan: whether to accept NaN and infinite weights, such as those of a run that diverged.

    Raises: ValueError that lists all tensors and variables that do not match.
    """
    stored.prepare(model)
    family, config = stored.family, parts_of(model).config
    taken, missing, new, wrong, unfit = set(), [], [], [], []
    for path, variable in named_variables(model, stored.holds_all).items():
        entry, name = stored.locate(path)
        if name is None or name not in stored:
            if variable.trainable or not is_head(family, path):  # other weights of heads keep their initial values
                (new if is_head(family, path) else missing).append((path, name, variable))
            continue
        taken.add(name)
        problem = _fill(variable, path.rpartition("/")[2], entry, stored.read(name), config, allow_nan)
        if problem is not None:
            (wrong if problem.startswith("expected") else unfit).append(f"{name} ({path}): {problem}")
    implied = implied_by(parts_of(model))
    left = [name for name in stored.names if name not in taken and name not in implied]
    unused = family.huggingface.unused
    left_out = {name for name in left if unused is not None and unused(config, name)}
    strange = [name for name in left if name not in left_out and not _belongs_to_head(stored, name)]
    unknown = [name for name in strange if stored.bare or stored.names[name].startswith(stored.prefixes)]
    problems = [f"  wrong shape: {line}" for line in wrong] + [f"  not usable: {line}" for line in unfit]
    problems += [f"  not in the file: {name} ({path})" for path, name, _ in missing]
    problems += [f"  not used by {type(parts_of(model)).__name__}: {stored.names[name]}" for name in unknown]
    if model is not parts_of(model) and not new:
        problems += [f"  untied: {name} differs from the tensor that this head shares" for name in stored.untied]
    problems += [f"  contradicts the config: {line}" for line in _not_implied(stored, implied)]
    for head, (name, why) in family.huggingface.refused.items():
        if name in stored and any(path.startswith(f"{head}/") for path, _, _ in new):
            problems.append(f"  not for this head: {stored.names[name]}; {why}")
    if problems:
        raise ValueError(
            f"The weights in {stored.files.folder} must match this model. Received:\n" + "\n".join(problems)
        )
    if new:
        _make_new(model, [(path, variable) for path, _, variable in new], stored)
    for names, say in (([name for name in left if name not in strange], log.info), (strange, log.warning)):
        if names:
            names = [stored.names[name] for name in names]
            say("%s contains weights that %s does not use: %s", stored.files.folder, type(model).__name__, names)


def _fill(variable, leaf, entry, array, config, allow_nan):
    """Assigns a stored array to a variable. Returns None, or a description of what is wrong with the array."""
    problem = unfit_numbers(array, variable, allow_nan)
    if problem is not None:
        return problem
    shape = tuple(array.shape)
    try:
        array = to_ours(entry, array, leaf, config)
        shape = tuple(array.shape)
    except (ValueError, IndexError, TypeError):  # too few axes, or a size that is not divisible into parts
        array = None
    if array is None or shape != tuple(variable.shape):
        return f"expected {tuple(variable.shape)}, found {shape}"
    variable.assign(shared(array))
    return None


def _not_implied(stored, implied):
    """Yields a message for each stored tensor that differs from the value in `implied`; see `implied_by`."""
    for name, source in implied.items():
        repeats = isinstance(source, str)
        if name not in stored or (repeats and source not in stored):
            continue
        if not np.array_equal(stored.read(name), stored.read(source) if repeats else source):
            yield f"{stored.names[name]} must " + (f"be equal to {source}" if repeats else "be the identity")


def _belongs_to_head(stored, name):
    """Whether a stored tensor belongs to a head or another optional layer of the family."""
    if is_head(stored.family, name) or name.startswith(tuple(f"kerasbert.{part}." for part in _EXTRA_PARTS)):
        return True
    for ours, entry in stored.family.huggingface.names.items():
        theirs = entry if isinstance(entry, str) else entry.name
        if is_head(stored.family, ours) and (name == theirs or name.startswith(f"{theirs}.")):
            return True
    return False


def _make_new(model, variables, stored):
    """Initializes variables that have no stored tensor, and issues a warning.

    Args:
        model: the model.
        variables: list of (path, variable).
        stored: the `StoredWeights`.
    """
    initializer = parts_of(model).config.kernel_initializer()
    for path, variable in variables:
        variable.is_new = True  # for LoRA, which trains it
        if path.endswith("/kernel") and not np.any(keras.ops.convert_to_numpy(variable)):
            # A pooler was created as zeros inside `zero_weights`. A head already has the initial values of its family.
            variable.assign(initializer(variable.shape, dtype=variable.dtype))
    layers = sorted({path.rpartition("/")[0] or path for path, _ in variables})
    missing = [layer for layer in layers if layer.split("/")[0] != stored.left_out]
    reasons = [f"has no weights for {', '.join(missing)}"] if missing else []
    reasons += [f"has a {stored.left_out} for other labels"] if len(missing) < len(layers) else []
    warn_caller(f"{stored.files.folder} {' and '.join(reasons)}: new head; expected when fine-tuning.")


def written_as(model, path, as_module=False):
    """Returns (entry of the family's table, stored name) for a variable in the file of a whole model.

    Names of the backbone's weights have a prefix if the model has a head. `as_module` is that of `stored_as`.
    """
    backbone = parts_of(model)
    family, layout = backbone.family, backbone.family.huggingface
    entry, name = stored_as(family, path, as_module)
    if name is None:
        raise ValueError(f"The layout of {type(backbone).__name__} has no name for {path}.")
    bare = model is backbone or type(model).__name__ in layout.bare or not layout.prefix
    if bare or path.split("/")[0] in {*family.heads, *_EXTRA_PARTS}:
        return entry, name
    return entry, f"{layout.prefix}.{name}"


def _joined(parts, config):
    """Returns the stored array of a fused layer, given [(its `Part`, the array of this part)]."""
    entry, array = parts[0]
    axis = 0 if entry.transposed else -1
    size = array.shape[axis] * entry.count
    fused = np.empty((size, *array.shape[1:]) if axis == 0 else (*array.shape[:-1], size), array.dtype)
    for entry, array in parts:
        outputs = entry.outputs(size, config)
        fused[outputs if axis == 0 else (..., outputs)] = array
    return fused


def export_weights(model):
    """Returns {stored name: numpy array} for the weights of a model, as transformers saves them.

    Weights that are shared with the token embeddings are left out. Names of the backbone's weights have a prefix if
    the model has a head.
    """
    backbone = parts_of(model)
    family, layout = backbone.family, backbone.family.huggingface
    bare = model is backbone or type(model).__name__ in layout.bare
    prefix = "" if bare or not layout.prefix else f"{layout.prefix}."
    tensors, pieces, merged = {}, {}, merged_kernels(model)
    without_pooler = model is not backbone and not model.needs_pooler(family, model.arguments())
    for path, variable in named_variables(model).items():
        if without_pooler and path.startswith("pooler/"):
            continue
        entry, name = written_as(model, path)
        array = keras.ops.convert_to_numpy(merged.get(id(variable), variable))
        array = to_theirs(entry, array, path.rpartition("/")[2], backbone.config)
        if isinstance(entry, Part):
            pieces.setdefault(name, []).append((entry, array))
        else:
            tensors[name] = array
    for name, parts in pieces.items():
        tensors[name] = _joined(parts, backbone.config)
    for name, source in implied_by(backbone).items():
        tensors[prefix + name] = tensors[prefix + source] if isinstance(source, str) else source
    for alias, name in family.huggingface.tied.items():
        if name in tensors and alias == name.removesuffix("bias") + "decoder.bias":
            tensors[alias] = tensors[name]  # transformers 4 has models that read either of the two
    spelling = {} if layout.spelling is None else layout.spelling(backbone.config)
    return {spelling.get(name, name): array for name, array in tensors.items()}
