"""Measures a saved model: a classifier on labelled texts, a language model on a corpus.

python -m pipelines.evaluate --model saved_models/mine --data test.csv
python -m pipelines.evaluate --model saved_models/quickstart --corpus corpora/held_out
"""

import json
import math
from pathlib import Path

import kerasbert
from kerasbert.data import Corpus, MaskedLMBatches
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier

from .command import command
from .finetune import score
from .labelled import Columns, read_labelled


def evaluate(
    model: str,
    data: str | None = None,
    corpus: Path | None = None,
    output: Path | None = None,
    batch_size: int = 32,
    length: int = 128,
    encoding: str = "utf-8",
    columns: Columns | None = None,
) -> dict:
    """Measures a saved model and prints the scores as JSON.

    Args:
        model: folder of a model, or hf://org/name.
        data: labelled texts, for a classifier.
        corpus: folder of `prepare_corpus`, for a masked language model.
        output: file for the scores.
        batch_size: texts or rows a step.
        length: tokens of a row of the corpus.
        encoding: of the data.
        columns: names of the columns of the data, where they cannot be guessed.
    """
    loaded = kerasbert.load(model)
    if isinstance(loaded, TextClassifier) and data is not None:
        scores = score(loaded, read_labelled(data, columns, encoding), batch_size)
    elif isinstance(loaded, MaskedLM) and corpus is not None:
        scores = language_model_scores(loaded, Corpus.open(corpus, loaded.require_tokenizer()), batch_size, length)
    else:
        raise ValueError(
            "A TextClassifier is measured on --data, a MaskedLM on --corpus. Received: a "
            f"{type(loaded).__name__} with data={data}, corpus={corpus}."
        )
    print(json.dumps(scores))
    if output:
        output.write_text(json.dumps(scores, indent=2))
    return scores


def language_model_scores(model: MaskedLM, corpus: Corpus, batch_size: int, length: int) -> dict[str, float]:
    """Loss in nats a masked token over one pass, beside the entropy of the token frequencies."""
    model.compile("sgd")
    batches = MaskedLMBatches(corpus, batch_size, length, sentence_pairs=model.sentence_pair is not None)
    found = model.evaluate(batches, verbose=0, return_dict=True)
    entropy = corpus.unigram_entropy()
    tokens = math.log(found["perplexity"])
    return {**found, "token_loss": tokens, "unigram_entropy": entropy, "below_unigram": entropy - tokens}


if __name__ == "__main__":
    command(evaluate)
