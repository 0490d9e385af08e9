"""Converts a row of a batch to the lines of a picture: the inputs of a model, and the tokens that it predicts.

The keys of a batch (see `kerasbert.core.Batch`) determine the lines, so batches of any kind can be drawn.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from kerasbert.data import Denoising, TextInfilling
from kerasbert.data.batches.rows import real_tokens

from .rows import Line
from .words import TokenNames


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a batch.

    Args:
        x: inputs by key, without the batch dimension.
        y: targets, an array or a dict.
        weights: weights of the targets, with the structure of `y`.
        names: the `TokenNames`, which give the text of each token.
        mask_id: id of the mask token, or None.
        sample: for replaced token detection, the function from the input row to the tokens that a generator samples for
            the masked positions.
        first_part: for `PermutationLMBatches`, the number of tokens in the first part of a row. Only this part is
            drawn. Default: the whole row.
        languages: names of the languages, by number.
        objective: objective of the discriminator, as in `ReplacedTokenDetection`.
    """

    x: dict[str, np.ndarray]
    y: np.ndarray | dict[str, np.ndarray]
    weights: np.ndarray | dict[str, np.ndarray]
    names: TokenNames
    mask_id: int | None = None
    sample: Callable[[dict], np.ndarray] | None = None
    first_part: int | None = None
    languages: tuple[str, ...] = ()
    objective: str = "replaced_tokens"

    @classmethod
    def of_batch(cls, batch: tuple, row: int, **options) -> "Row":
        """Extracts a row from a batch (x, y, weights)."""
        parts = ({k: v[row] for k, v in part.items()} if isinstance(part, dict) else part[row] for part in batch)
        return cls(*parts, **options)

    @property
    def real(self) -> np.ndarray:
        """The columns of tokens that are not padding."""
        keys = ("lengths", "padding_mask", "sequence_ids")
        if not any(key in self.x for key in keys):
            return np.arange(len(self.x["token_ids"]))
        return np.flatnonzero(real_tokens({key: np.asarray(value)[None] for key, value in self.x.items()})[0])

    @property
    def originals(self) -> np.ndarray:
        """The token ids before tokens were masked or replaced."""
        ids = np.array(self.x["token_ids"])
        if "masked_positions" in self.x and "query_ranks" not in self.x:
            slots = self.x["masked_positions"]
            ids[slots[slots >= 0]] = self.targets[slots >= 0]
        return ids

    @property
    def targets(self) -> np.ndarray:
        """The original tokens at the masked positions."""
        return self.y["tokens"] if isinstance(self.y, dict) else self.y

    def line(self, label: str, ids, kinds=None, **under) -> Line:
        """Creates a line of tokens. By default, special tokens have the kind "special"."""
        kinds = ["text"] * len(ids) if kinds is None else list(kinds)
        kinds = [
            ("sentinel" if self.names.is_sentinel(i) else "special")
            if kind == "text" and self.names.is_special(i)
            else kind
            for i, kind in zip(map(int, ids), kinds, strict=True)
        ]
        under = {name.replace("_", " "): tuple(map(str, values)) for name, values in under.items()}
        return Line(label, tuple(self.names(int(i)) for i in ids), tuple(kinds), under)


def lines_of(row: Row) -> list[Line]:
    """Returns the lines of a row."""
    if not isinstance(row.y, dict) and not np.ndim(row.y):  # no token is predicted
        return [row.line("inputs", row.x["token_ids"][row.real])]
    for key, lines in LINES.items():
        if key in row.x:
            return lines(row)
    return _bidirectional(row) if isinstance(row.y, dict) else _next_tokens(row)


# === Masked tokens ===


def slot_kinds(row: Row) -> dict[int, str]:
    """Returns {column of a masked position: whether its token is masked, kept, or replaced at random}."""
    kinds = {}
    for column, target in zip(row.x["masked_positions"].tolist(), row.targets.tolist(), strict=True):
        if column >= 0:
            found = int(row.x["token_ids"][column])
            kinds[column] = "mask" if found == row.mask_id else "kept" if found == target else "random"
    return kinds


def _masked(row: Row) -> list[Line]:
    if isinstance(row.weights, dict) and "replaced" in row.weights:
        return _replaced(row)
    ids, slots, columns = row.x["token_ids"], slot_kinds(row), row.real.tolist()
    originals = row.originals
    under = {"predicts": [row.names(int(originals[c])) if c in slots else "" for c in columns]}
    if "segment_ids" in row.x and row.x["segment_ids"].any():
        under["segment"] = row.x["segment_ids"][columns]
    languages = row.x["language_ids"][columns].tolist() if "language_ids" in row.x else []
    if len(set(languages)) > 1:  # a sentence and its translation, each with positions from 0
        under["position"] = row.x["position_ids"][columns]
        under["language"] = [row.languages[number] for number in languages]
    lines = [row.line("inputs", ids[columns], [slots.get(c, "text") for c in columns], **under)]
    if "span_left" in row.x:
        lines += _boundaries(row)
    return lines


def _restored(row: Row) -> list[Line]:
    """Adds to the masked tokens of the encoder what one position of RetroMAE's decoder sees, that in the middle."""
    ids, columns = row.x["decoder_token_ids"], row.real.tolist()
    middle = columns[len(columns) // 2]
    sees = ["sees" if row.x["decoder_visible"][middle, c] else "" for c in columns]
    kinds = ["text" if seen else "noise" for seen in sees]
    predicts = [row.names(int(ids[c])) if c == middle else "" for c in columns]
    return [*_masked(row), row.line("decoder", ids[columns], kinds, sees=sees, predicts=predicts)]


def _boundaries(row: Row) -> list[Line]:
    """Lists the predictions of the boundary objective: a token of a span, the tokens beside the span, its position."""
    x, originals = row.x, row.originals
    used = np.flatnonzero(x["span_left"] >= 0)
    if not len(used):
        return []
    sides = [[row.names(int(originals[c])) for c in x[key][used]] for key in ("span_left", "span_right")]
    places = [f"p{offset + 1}" for offset in x["span_offset"][used]]
    targets = row.targets[used]
    return [row.line("boundary", targets, ["noise"] * len(used), left=sides[0], right=sides[1], place=places)]


def _replaced(row: Row) -> list[Line]:
    x, columns, slots = row.x, row.real.tolist(), slot_kinds(row)
    originals, sampled = row.originals, row.sample(x)
    filled = np.array(x["token_ids"])
    filled[x["masked_positions"][x["masked_positions"] >= 0]] = sampled[x["masked_positions"] >= 0]
    changed = filled != originals
    predicts = [row.names(int(originals[c])) if c in slots else "" for c in columns]
    kinds = ["sampled" if changed[c] else "kept" if c in slots else "text" for c in columns]
    labels = ["replaced" if changed[c] else "original" for c in columns]
    if row.objective.endswith("mlm"):
        labels = [row.names(int(originals[c])) for c in columns]
    if row.objective in ("replaced_slots", "replace_mlm"):
        labels = [label if c in slots else "" for c, label in zip(columns, labels, strict=True)]
    return [
        row.line("generator", x["token_ids"][columns], [slots.get(c, "text") for c in columns], predicts=predicts),
        row.line("discriminator", filled[columns], kinds, predicts=labels),
    ]


# === Permutations ===


def _permuted(row: Row) -> list[Line]:
    """Shows the order of the targets, and for each target, the tokens that it can be predicted from."""
    x, names = row.x, row.names
    columns = np.arange(row.first_part or len(x["token_ids"]))
    queries, keys = x["query_ranks"][columns], x["key_ranks"][columns]
    slots = [c for c in x["masked_positions"].tolist() if 0 <= c < len(columns)]
    order = sorted(slots, key=lambda c: int(keys[c]))
    ranks = [str(order.index(c) + 1) if c in order else "" for c in columns]
    kinds = ["noise" if c in slots else "text" for c in columns]
    lines = [row.line("order", x["token_ids"][columns], kinds, predicted=ranks)]
    for number, target in enumerate(order, 1):
        seen = queries[target] > keys
        tokens = ["?" if c == target else names(int(x["token_ids"][c])) for c in columns]
        kinds = ["mask" if c == target else "text" if seen[c] else "hidden" for c in columns]
        tokens = ["·" * len(token) if kind == "hidden" else token for token, kind in zip(tokens, kinds, strict=True)]
        lines.append(Line(f"{number}. {names(int(x['token_ids'][target]))}", tuple(tokens), tuple(kinds)))
    return lines


# === Text after text ===


def _next_tokens(row: Row) -> list[Line]:
    used = np.flatnonzero(row.weights) if "prefix_mask" not in row.x and "lengths" not in row.x else row.real
    predicts = [row.names(int(row.y[c])) if row.weights[c] else "" for c in used]
    kinds = None
    if "prefix_mask" in row.x:
        kinds = ["prefix" if row.x["prefix_mask"][c] else "text" for c in used]
    return [row.line("reads", row.x["token_ids"][used], kinds, predicts=predicts)]


def _bidirectional(row: Row) -> list[Line]:
    columns = row.real
    under = {
        name: [row.names(int(row.y[side][c])) if row.weights[side][c] else "" for c in columns]
        for name, side in (("next", "forward"), ("previous", "backward"))
    }
    return [row.line("reads", row.x["token_ids"][columns], **under)]


def _two_sided(row: Row) -> list[Line]:
    targets = row.y[row.weights > 0]
    return [row.line("inputs", row.x["token_ids"][row.real]), row.line("targets", targets)]


def _nearby(row: Row) -> list[Line]:
    """Shows a word with a nearby word and random words."""
    kinds = ["noise", *["random"] * (len(row.y) - 1)]
    labels = ["" if not weight else "1" if y else "0" for y, weight in zip(row.y, row.weights, strict=True)]
    return [row.line(row.names(int(row.x["token_ids"][0])), row.x["context_ids"], kinds, target=labels)]


# === Denoising ===


def infilling_lines(row: Row, text: np.ndarray, noise: TextInfilling) -> list[Line]:
    """Shows the text, and the inputs and targets of a row of `DenoisingBatches` with `TextInfilling`."""
    inputs, targets = row.x["token_ids"][row.real], row.y[row.weights > 0]
    kinds = ["mask" if token == noise.mask_id else "text" for token in inputs]
    return [row.line("text", text), row.line("inputs", inputs, kinds), row.line("targets", targets)]


def denoising_lines(row: Row, text: np.ndarray, noise: Denoising) -> list[Line]:
    """Shows the text with its noise, and the inputs and targets of a row for an encoder-decoder.

    Args:
        row: a row of `DenoisingBatches`.
        text: ids of the text of the row, without an end token.
        noise: the objective.
    """
    sentinels, targets = set(noise.sentinels), row.y[row.weights > 0]
    inputs = row.x["token_ids"][row.real]
    if noise.parts.targets == "text":  # then inputs and text are aligned
        changed = inputs[: len(text)] != text
        kinds = ["text"] * len(inputs)
        for column in np.flatnonzero(changed):
            is_mask = noise.parts.inputs != "shuffled" and inputs[column] == noise.sentinels[0]
            kinds[column] = "moved" if noise.parts.inputs == "shuffled" else "mask" if is_mask else "random"
        marked = ["noise" if there and noise.parts.inputs != "shuffled" else "text" for there in changed]
    else:
        kept, removed = ([i for i in part.tolist()[:-1] if i not in sentinels] for part in (inputs, targets))
        marked = ["noise" if there else "text" for there in _interleaved(text.tolist(), kept, removed)]
        kinds = None
    found = [row.line("text", text, marked), row.line("inputs", inputs, kinds), row.line("targets", targets)]
    if noise.parts.inputs in ("mask", "mask_or_random"):
        mask = row.names(noise.sentinels[0])
        tokens = tuple("<M>" if token == mask else token for token in found[1].tokens)
        found[1] = dataclasses.replace(found[1], tokens=tokens)
    return found


def _interleaved(text: list[int], kept: list[int], removed: list[int]) -> list[bool]:
    """Infers which tokens of a text are removed, given the sequence of kept and the sequence of removed tokens."""
    paths = {0: []}  # {number of kept tokens so far: whether each token so far was removed}
    for place, token in enumerate(text):
        following = {}
        for count, path in paths.items():
            if count < len(kept) and kept[count] == token:
                following.setdefault(count + 1, [*path, False])
            if place - count < len(removed) and removed[place - count] == token:
                following.setdefault(count, [*path, True])
        paths = following
    if len(kept) not in paths:
        raise ValueError(
            "Inputs and targets must consist of the tokens of the text. Received: tokens that it does not have."
        )
    return paths[len(kept)]


# {key that only one kind of batch has: function that creates its lines}. The first key in a batch is used.
LINES = {
    "context_ids": _nearby,
    "decoder_visible": _restored,
    "decoder_token_ids": _two_sided,
    "query_ranks": _permuted,
    "masked_positions": _masked,
}
