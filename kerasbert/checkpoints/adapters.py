"""Reads and writes LoRA adapters in the layout of PEFT: `adapter_config.json` and `adapter_model.safetensors`.

A module of Hugging Face's model that fuses several of our layers, such as GPT-2's `c_attn` or ModernBERT's `Wqkv`, has
a single product B A. It combines the products of our layers: A stacks their rows, and B is block-diagonal.

The other way round, transformers splits or renames layers of NomicBERT, GTE and jina-embeddings-v3. Their adapters are
written with the names in the model of transformers, and read with these or with the names of the files, which are those
of the code on the Hub.
"""

import collections
import re

import keras
import numpy as np

from ..backend.keras_adapter import base_kernel
from ..core.lora import Product, add_products, freeze
from ..core.quantization import layers_by_path
from ..core.variables import parts_of
from ..core.weight_names import Heads, Part, Tensor
from ..data.text.folders import folder_at, read_together, replaced_together
from .adapter_config import CONFIG, read_adapter_config, scale_of
from .huggingface import export_weights, is_head, named_variables, to_ours, written_as
from .tensor_files import open_tensors, write_json, write_safetensors

WEIGHTS = "adapter_model.safetensors"
_IN_PEFT = "base_model.model."  # PEFT's prefix of the names of modules

# Our class -> task type in PEFT.
_TASKS = {
    "TextClassifier": "SEQ_CLS",
    "Reranker": "SEQ_CLS",
    "TokenClassifier": "TOKEN_CLS",
    "QuestionAnswerer": "QUESTION_ANS",
    "CausalLM": "CAUSAL_LM",
    "Seq2SeqLM": "SEQ_2_SEQ_LM",
    "TextEmbedder": "FEATURE_EXTRACTION",
}

# === Writing ===


def save_adapter(model, folder, base=None):
    """Writes the LoRA products of a model, and the heads that it trains, in the layout of PEFT.

    Args:
        model: a model with LoRA; see `training.add_lora`.
        folder: the folder, created if it does not exist.
        base: the model that the adapter was trained on: a folder, or the name of a model on the Hugging Face Hub.
    """
    modules = _modules(model)
    adapted = {name: parts for name, parts in modules.items() if any(layer.lora_enabled for _, layer in parts.values())}
    if not adapted:
        raise ValueError("`save_adapter` needs a model with LoRA. Received: a model without. Call `add_lora` first.")
    tensors, ranks, alphas = {}, {}, {}
    for module, parts in adapted.items():
        a, b, scale = _fused(parts, parts_of(model).config)
        tensors[f"{_IN_PEFT}{module}.lora_A.weight"], tensors[f"{_IN_PEFT}{module}.lora_B.weight"] = a, b
        ranks[module], alphas[module] = len(a), scale * len(a)
    heads, saved = _trained_heads(model)
    tensors |= {f"{_IN_PEFT}{name}": array for name, array in heads.items()}
    rank, alpha = (collections.Counter(values.values()).most_common(1)[0][0] for values in (ranks, alphas))
    entries = [entry for parts in adapted.values() for entry, _ in parts.values()]
    config = {
        "peft_type": "LORA",
        "task_type": _TASKS.get(type(model).__name__),
        "base_model_name_or_path": None if base is None else str(base).removeprefix("hf://"),
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": _targets(adapted, modules),
        "rank_pattern": {re.escape(name): value for name, value in ranks.items() if value != rank},
        "alpha_pattern": {re.escape(name): value for name, value in alphas.items() if value != alpha},
        "modules_to_save": saved or None,
        "fan_in_fan_out": any(isinstance(entry, Part) and not entry.transposed for entry in entries),
        "inference_mode": True,
    }
    with replaced_together(folder_at(folder), last=CONFIG) as written:
        write_safetensors(written / WEIGHTS, tensors)
        write_json(written / CONFIG, config)


def _modules(model, as_module=True):
    """Returns {name of a module in Hugging Face's model: {index of the part: (table entry, our dense layer)}}.

    Without `as_module`, the names are those of the file.
    """
    found, apart = {}, getattr(model, "KEPT_APART", ())
    for path, layer in layers_by_path(model).items():
        if isinstance(layer, keras.layers.Dense) and path.split("/")[0] not in apart:
            entry, name = _written_as(model, f"{path}/kernel", as_module)
            if isinstance(entry, (Tensor, Heads)):
                if layer.lora_enabled:
                    raise ValueError(
                        f"In PEFT, LoRA needs linear layers. Received: LoRA in {path}, which transformers stores as a "
                        f"bare parameter, {name}. Save the merged model with `save_to_preset`."
                    )
                continue
            index = entry.index if isinstance(entry, Part) else 0
            found.setdefault(name.removesuffix(".weight"), {})[index] = (entry, layer)
    return found


def _written_as(model, path, as_module=True):
    """Returns (table entry, name) of a variable in transformers' model that PEFT adapts.

    If this is transformers' bare model, as for a `TextEmbedder`, the names of the backbone have no prefix.
    """
    return written_as(_adapted_model(model), path, as_module)


def _adapted_model(model):
    """Returns the backbone if transformers has no class with the model's head, and otherwise the model itself."""
    backbone = parts_of(model)
    classes = backbone.family.huggingface.of_type("classes", backbone.config.model_type)
    return backbone if classes.get(model.variant(), classes["Backbone"]) == classes["Backbone"] else model


def _fused(parts, config):
    """Combines the products of fused layers. Returns (A, B, scale): float32 (r, inputs), (outputs, r), and a factor.

    Args:
        parts: {index of the part: (table entry, our dense layer)}.
        config: the config of the backbone.
    """
    products = {index: _product(layer) for index, (_, layer) in sorted(parts.items()) if layer.lora_enabled}
    scales = {product.alpha / product.a.shape[1] for product in products.values()}
    scale = scales.pop() if len(scales) == 1 else 1.0
    rank = sum(product.a.shape[1] for product in products.values())
    b, start = np.zeros((_num_outputs(parts), rank), "float32"), 0
    for index, product in products.items():
        size = product.a.shape[1]
        block = product.b.T * (product.alpha / size / scale)
        b[_outputs(parts[index][0], len(b), config), start : start + size] = block
        start += size
    return np.concatenate([product.a.T for product in products.values()]), b, scale


def _num_outputs(parts):
    entry, layer = next(iter(parts.values()))
    return (entry.count if isinstance(entry, Part) else 1) * layer.units


def _outputs(entry, size, config):
    """Returns the slice, or the indices, of the outputs of a layer among the `size` outputs of its module."""
    return entry.outputs(size, config) if isinstance(entry, Part) else slice(size)


def _product(layer):
    a, b = (keras.ops.convert_to_numpy(v).astype("float32") for v in (layer.lora_kernel_a, layer.lora_kernel_b))
    return Product(a, b, float(layer.lora_alpha))


def _targets(adapted, modules):
    """Returns the last parts of the adapted modules' names if they are unambiguous, otherwise the whole names."""
    short = {name.rpartition(".")[2] for name in adapted}
    others = {name.rpartition(".")[2] for name in modules if name not in adapted}
    return sorted(short) if not short & others else sorted(adapted)


def _trained_heads(model):
    """Returns ({stored name: array}, names of the modules) for modules that were trained without LoRA.

    PEFT stores all tensors of such modules, including those that are tied to the embeddings.
    """
    backbone = parts_of(model)
    layout = backbone.family.huggingface
    inside = {id(variable) for variable in backbone.variables}
    trained = {id(variable) for variable in model.trainable_variables}
    modules, apart = set(), getattr(model, "KEPT_APART", ())
    for path, variable in named_variables(model, apart=True).items():
        if id(variable) not in trained:
            continue
        if path.split("/")[0] in apart or (id(variable) in inside and not is_head(backbone.family, path)):
            raise ValueError(
                f"An adapter holds LoRA products and heads. Received: a model that also trains {path}. Freeze it with "
                "`add_lora`, or save the whole model with `save_to_preset`."
            )
        modules.add(_module(_written_as(model, path)[1], layout))
    if not modules:
        return {}, []
    tensors = export_weights(_adapted_model(model))
    tensors |= {alias: tensors[name] for alias, name in layout.tied.items() if name in tensors}
    for path in named_variables(model, apart=True):
        stored, name = (_written_as(model, path, as_module)[1] for as_module in (False, True))
        if name != stored and stored in tensors:
            tensors[name] = tensors.pop(stored)
    arrays = {name: array for name, array in tensors.items() if _module(name, layout) in modules}
    integers = sorted(name for name, array in arrays.items() if array.dtype.kind == "i")
    if integers:
        raise ValueError(
            f"PEFT stores a trained head as floats, with the weights that it shares. Received: {integers[0]}, which is "
            "quantized. Freeze the head before training, with `trainable = False`, or train from full precision."
        )
    return {name: array.astype("float32") for name, array in arrays.items()}, sorted(modules)


def _module(name, layout):
    """Returns the first part of a stored name after the prefix of the backbone, such as classifier or pooler."""
    return name.removeprefix(f"{layout.prefix}.").split(".")[0]


# === Reading ===


def load_adapter(model, folder, merge=False):
    """Adds the LoRA products of an adapter to a model, and loads the heads that were trained with them.

    Nothing is changed if the adapter does not fit the model.

    Args:
        model: the model that the adapter was trained on: a backbone, objective or task.
        folder: a folder in the layout of PEFT.
        merge: whether to add the products to the kernels, so that the result is an ordinary model. Otherwise, the
            products are trainable, and the backbone is frozen.
    """
    folder = folder_at(folder)
    with read_together(folder, lambda name: name in (CONFIG, WEIGHTS)):
        config, tensors = read_adapter_config(folder / CONFIG), _read(folder, parts_of(model).family.huggingface)
    modules, products = _modules(model, as_module=False) | _modules(model), []
    for module in sorted({name.rpartition(".lora_")[0] for name in tensors if ".lora_" in name}):
        a, b = (tensors.pop(f"{module}.lora_{letter}.weight", None) for letter in "AB")
        if any(array is None or array.ndim != 2 for array in (a, b)) or module not in modules:
            raise ValueError(
                f"Each module of an adapter must be a dense layer of the model, with two matrices. Received: {module} "
                f"in {folder} for a {type(model).__name__}, whose dense layers are {_last_parts(modules)}. Is this the "
                "model that it was trained on?"
            )
        scale = scale_of(config, module, len(a), folder)
        products += _split(modules[module], a, b, scale, parts_of(model).config, f"{module} in {folder}")
    if not products:
        raise ValueError(f"An adapter must contain LoRA products. Received: {folder} without any.")
    heads = _heads(model, tensors, folder)
    counts = collections.Counter(layer.path for layer, _ in products)
    taken = [layer.path for layer, _ in products if layer.lora_enabled or counts[layer.path] > 1]
    if taken:
        raise ValueError(
            f"A dense layer can have one LoRA product. Received: {taken[0]} with two. Load the model again, and an "
            "adapter that has one for each layer."
        )
    if merge and any(layer.quantization_mode in ("int8", "int4") for layer, _ in products):
        raise ValueError("Products cannot be merged into integers. Received: a quantized model. Use merge=False.")
    for layer, product in products:
        _check_numbers(layer, product, merge, folder)
    for variable, array in heads:
        variable.assign(array)
    if not merge:
        freeze(parts_of(model))
    add_products(model, products, merge)


def _last_parts(modules):
    return ", ".join(sorted({name.rpartition(".")[2] for name in modules}))


def _read(folder, layout):
    """Reads the tensors of an adapter, {name without PEFT's prefix, and with the prefix of the layout: array}."""
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"An adapter folder must contain {WEIGHTS}. Received: {folder} without it.")
    file = open_tensors(folder / WEIGHTS)
    names = {name: name.removeprefix(_IN_PEFT).replace(".modules_to_save.", ".") for name in file.keys()}
    for older in layout.older_prefixes:
        names = {name: re.sub(rf"\A{older}\.", f"{layout.prefix}.", short) for name, short in names.items()}
    if len(set(names.values())) < len(names):
        twice = collections.Counter(names.values()).most_common(1)[0][0]
        raise ValueError(f"An adapter must contain each weight once. Received: {folder} with {twice} twice.")
    tensors = {}
    for name, short in names.items():
        array = file.get_tensor(name)
        with np.errstate(over="ignore"):
            tensors[short] = np.asarray(array, "float32")
        if array.dtype.name != "bfloat16" and array.dtype.kind != "f" or not np.isfinite(tensors[short]).all():
            raise ValueError(
                f"The weights of an adapter must be finite floating-point numbers. Received: {short} in {folder}, "
                f"{array.dtype.name}{' with NaN or infinite numbers' if array.dtype.kind not in 'iub' else ''}."
            )
    return tensors


def _check_numbers(layer, product, merge, folder):
    """Raises a ValueError if a product, or its sum with the kernel, has numbers that the dtype cannot represent."""
    limit = 65_504.0 if layer.variable_dtype == "float16" else float(np.finfo("float32").max)
    with np.errstate(over="ignore", invalid="ignore"):
        update = np.float32(product.alpha / len(product.b)) * product.a @ product.b
        if merge:
            update = update + keras.ops.convert_to_numpy(base_kernel(layer)).astype("float32")
    largest = max((float(np.abs(array).max()) for array in (update, product.a, product.b)), default=0.0)
    if not largest <= limit:
        raise ValueError(
            f"The products of an adapter must be numbers that {layer.variable_dtype} can represent. Received: "
            f"{largest:.3g} for {layer.path} in {folder}. Are `lora_alpha` and `alpha_pattern` right?"
        )


def _split(parts, a, b, scale, config, where):
    """Splits the product of a module into the products of our layers, a list of (layer, `Product`).

    Args:
        parts: {index of the part: (table entry, our dense layer)}.
        a, b: the stored matrices (r, inputs) and (outputs, r).
        scale: the factor of their product.
        config: the config of the backbone.
        where: name of the module and the folder, for messages.
    """
    inputs, outputs = int(next(iter(parts.values()))[1].kernel.shape[0]), _num_outputs(parts)
    if a.shape[1] != inputs or b.shape != (outputs, len(a)):
        raise ValueError(
            f"The matrices of {where} must be (r, {inputs}) and ({outputs}, r). Received: {a.shape} and {b.shape}."
        )
    found = []
    for _, (entry, layer) in sorted(parts.items()):
        block = b[_outputs(entry, outputs, config)]
        used = np.flatnonzero(np.any(block, axis=0) | (not b.any()))  # columns of zeros belong to the other parts
        if used.size:
            found.append((layer, Product(a[used].T, block[:, used].T, scale * len(used))))
    return found


def _heads(model, tensors, folder):
    """Returns a list of (variable, array) for the stored heads. Raises a ValueError if one does not fit the model."""
    found, left, values = [], dict(tensors), {}
    for path, variable in named_variables(model).items():
        entry, name = _written_as(model, path, as_module=False)
        values[name] = left.pop(name, left.pop(_written_as(model, path)[1], variable))
        if values[name] is variable:
            continue
        array = to_ours(entry, values[name], path.rpartition("/")[2], parts_of(model).config)
        if tuple(array.shape) != tuple(variable.shape):
            raise ValueError(
                f"The head {path} must have the shape {tuple(variable.shape)}. Received: {tuple(array.shape)} in "
                f"{folder}. Create the model with the labels of the adapter."
            )
        found.append((variable, array))
    for alias, name in parts_of(model).family.huggingface.tied.items():
        if alias in left and np.array_equal(left[alias], keras.ops.convert_to_numpy(values.get(name, ()))):
            del left[alias]  # still equal to the weight that it is tied to
    if left:
        raise ValueError(
            f"Each weight of an adapter must belong to the model. Received: {', '.join(sorted(left)[:5])} in {folder} "
            f"for a {type(model).__name__}, which has no use for them."
        )
    return found
