"""Measures a saved model: that of a task on examples, a language model on a corpus.

python -m pipelines.evaluate --model saved_models/mine --data test.csv
python -m pipelines.evaluate --model saved_models/quickstart --corpus corpora/held_out
"""

import json
import math
from pathlib import Path

import kerasbert
from kerasbert.data import CausalLMBatches, Corpus, MaskedLMBatches
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier

from .command import command
from .examples import read_examples
from .finetune import score, write_answers
from .labelled import Columns
from .scores import language_model_scores

# Class -> kind of examples that it is measured on; a TextClassifier's is its problem.
KINDS = {TokenClassifier: "tags", QuestionAnswerer: "questions", MultipleChoice: "choices", Seq2SeqLM: "sequences"}


def evaluate(
    model: str,
    data: str | None = None,
    corpus: Path | None = None,
    output: Path | None = None,
    batch_size: int = 32,
    length: int = 128,
    encoding: str = "utf-8",
    columns: Columns | None = None,
    answers: Path | None = None,
) -> dict:
    """Measures a saved model and prints the scores as JSON.

    Args:
        model: folder of a model, or hf://org/name.
        data: examples, for the model of a task; in the forms of `finetune`.
        corpus: folder of `prepare_corpus`, for a masked language model.
        output: file for the scores.
        batch_size: texts or rows a step.
        length: tokens of a row of the corpus.
        encoding: of the data.
        columns: names of the columns of the data, where they cannot be guessed.
        answers: file for the answers, a line an example.
    """
    loaded = kerasbert.load(model)
    kind = loaded.problem if isinstance(loaded, TextClassifier) else KINDS.get(type(loaded))
    if kind is not None and data is not None:
        examples = read_examples(kind, data, columns, encoding)
        scores, found = score(loaded, examples, batch_size)
        if answers:
            write_answers(answers, examples, found)
    elif isinstance(loaded, MaskedLM | CausalLM) and corpus is not None:
        scores = score_language_model(loaded, Corpus.open(corpus, loaded.require_tokenizer()), batch_size, length)
    else:
        raise ValueError(
            "The model of a task is measured on --data, a MaskedLM or a CausalLM on --corpus. Received: a "
            f"{type(loaded).__name__} with data={data}, corpus={corpus}."
        )
    print(json.dumps(scores))
    if output:
        output.write_text(json.dumps(scores, indent=2))
    return scores


def score_language_model(model: MaskedLM | CausalLM, corpus: Corpus, batch_size: int, length: int) -> dict[str, float]:
    """Loss in nats a predicted token over one pass, beside the entropy of the token frequencies."""
    model.compile("sgd")
    if isinstance(model, MaskedLM):
        batches = MaskedLMBatches(corpus, batch_size, length, sentence_pairs=model.sentence_pair is not None)
    else:
        batches = CausalLMBatches(corpus, batch_size, length)
    found = model.evaluate(batches, verbose=0, return_dict=True)
    return {**found, **language_model_scores(math.log(found["perplexity"]), corpus.unigram_entropy())}


if __name__ == "__main__":
    command(evaluate)
