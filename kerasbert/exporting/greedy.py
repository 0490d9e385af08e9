"""Greedy decoding with the programs of an export, one call of the decoder per token."""

import numpy as np

from ..runtime.inputs import as_inputs


def greedy(engine, options, length):
    """Returns a function that decodes greedily, with the arguments and results of `decoding.decode`.

    Args:
        engine: the `OnnxEngine` of the model.
        options: the `search.Options`.
        length: capacity for new tokens.

    Raises: ValueError if the options ask for a search that an export does not have.
    """
    if options.num_beams > 1 or options.sample or options.num_sequences > 1:
        raise ValueError(
            f"An export decodes greedily. Received: num_beams={options.num_beams}, sample={options.sample}, "
            f"num_sequences={options.num_sequences}. Pass num_beams=1 and sample=False if the settings of the model "
            "have other values, or load the folder of the model that was exported."
        )
    if "decoder" not in engine.programs.described:
        raise ValueError(
            "Generation needs the decoder of an export. Received: an export without one, because the cache of its "
            "model cannot be exported. Load the folder of the model that was exported."
        )

    def decode(context, numbers, token_ids, real, limits, draws):
        rows, width = token_ids.shape
        cache = engine.empty_cache(rows, width + length)
        if context:
            cache |= engine.programs.run("encoder", as_inputs(context))
        counted = np.cumsum(real, axis=1, dtype="int32")
        inputs = {"token_ids": token_ids, "padding_mask": real, "position_ids": np.maximum(counted - 1, 0)}
        tokens, counts = np.zeros((rows, 1, length), "int32"), np.full((rows, 1), int(limits[1]), "int32")
        scores, going = np.zeros((rows, 1), "float32"), np.ones(rows, bool)
        for step in range(int(limits[1])):
            found = engine.programs.run("decoder", {**inputs, **cache})
            cache |= {name.removeprefix("next."): array for name, array in found.items() if name.startswith("next.")}
            logits = found["logits"]
            history = [
                np.append(row[known], new) for row, known, new in zip(token_ids, real, tokens[:, 0, :step], strict=True)
            ]
            allowed = without_repetition(logits, history, options.no_repeat_ngram_size, numbers)
            if step < limits[0]:
                allowed[:, list(options.stop_ids)] = -np.inf
            for name, place in (("first_id", 0), ("last_id", limits[1] - 1)):
                if name in numbers and step == place:  # this token has the probability 1
                    logits = np.where(np.arange(logits.shape[-1]) == numbers[name], 0.0, -np.inf)
                    logits = allowed = np.broadcast_to(logits.astype("float32"), allowed.shape)
            best = allowed.argmax(axis=-1)
            peaks = logits.max(axis=-1)
            totals = peaks + np.log(np.exp(logits - peaks[:, None]).sum(axis=-1))
            scores[going, 0] += (logits[np.arange(rows), best] - totals)[going]
            tokens[going, 0, step] = best[going]
            ended = going & np.isin(best, options.stop_ids)
            counts[ended, 0] = step + 1
            going &= ~ended
            if not going.any():
                break
            ones = np.ones((rows, 1), "int32")
            inputs = {"token_ids": best[:, None], "padding_mask": ones, "position_ids": counted[:, -1:] + step}
        return tokens, counts, scores

    return decode


def without_repetition(logits, history, size, numbers):
    """Returns a copy of logits (r, v), changed as by `generation.repetition.without_repetition`.

    Args:
        logits: float32 (r, v).
        history: for each row the int32 array of its tokens so far.
        size: `no_repeat_ngram_size`.
        numbers: {name: value}, maybe with a `repetition_penalty`.
    """
    changed = logits.copy()
    for row, tokens in zip(changed, history, strict=True):
        if "repetition_penalty" in numbers:
            seen = np.unique(tokens)
            row[seen] *= np.where(row[seen] < 0, numbers["repetition_penalty"], 1 / numbers["repetition_penalty"])
        if 0 < size <= len(tokens):
            grams = np.lib.stride_tricks.sliding_window_view(tokens, size)
            latest = tokens[len(tokens) - size + 1 :]
            row[grams[(grams[:, :-1] == latest).all(axis=1), -1]] = -np.inf
    return changed
