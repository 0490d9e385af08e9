"""Columns of pandas, pyarrow, polars and datasets in place of lists, in every task; tables are refused by name."""

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kerasbert.data import Corpus, Tokenizer
from kerasbert.models import GPT2, GPT2Config
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.tasks import MultipleChoice, MultiTask, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

pytestmark = pytest.mark.one_backend

TEXTS = ["a cat", "a dog", "Ann met Bob", "a cat met a dog", "Bob", "in Rome"]
NAMES = ["no", "yes"] * 3
INDEX = [41, 7, 13, 2, 99, 50]
WORDS = [["Ann", "lives", "."], ["Bob", "met", "Ann"], ["a", "cat", "met"], ["a", "dog", "."]]
TAGS = [["B", "O", "O"], ["B", "O", "B"], ["O"] * 3, ["O"] * 3]
QUESTIONS = [("who lives in Bonn ?", "Bob lives in Bonn ."), ("who met Bob ?", "Ann met Bob in Bonn")] * 2
ANSWERS = [("Bob", 0), ("Ann", 0)] * 2
CHOICES = [("where lives Ann ?", ["Ann lives in Rome .", "a cat"]), ("who met Bob ?", ["a dog", "Ann"])] * 2


class Series:
    """A column with the interface of polars, whose items are found by position and by nothing else."""

    def __init__(self, values):
        self.values = list(values)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, place):
        return self.values[place]

    def to_list(self):
        return list(self.values)


class Frame:
    """A table with the interface of polars: it iterates over its columns."""

    def __init__(self, columns):
        self.data, self.columns = columns, list(columns)

    def __iter__(self):
        return (Series(values) for values in self.data.values())

    def __len__(self):
        return 6

    def __getitem__(self, name):
        return Series(self.data[name])

    get_column = __getitem__


def datasets_column(values):
    import datasets

    return datasets.Dataset.from_dict({"x": list(values)})["x"]


def series(values):
    return pd.Series(values, index=INDEX[: len(values)])


FORMS = {
    "pandas": series,
    "category": lambda values: series(values).astype("category"),
    "pyarrow": lambda values: pa.chunked_array([values[:2], values[2:]]),
    "polars": Series,
    "datasets": datasets_column,
    "numpy": np.array,
}


@pytest.fixture
def classifier(tiny_backbone, tokenizer):
    model = TextClassifier(tiny_backbone(), labels=["no", "yes"], tokenizer=tokenizer)
    model.compile(keras.optimizers.SGD(0.0))
    return model


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_classifier_reads_every_column(form, classifier):
    expected = classifier.evaluate(TEXTS, NAMES, verbose=0)
    x, y = form(TEXTS), form(NAMES)
    assert classifier.evaluate(x, y, verbose=0) == expected
    np.testing.assert_array_equal(classifier.predict(x, verbose=0), classifier.predict(TEXTS, verbose=0))
    assert classifier.classify(x) == classifier.classify(TEXTS)
    history = classifier.fit(x, y, verbose=0, validation_data=(x, y), class_weight={"yes": 2.0}).history
    assert history["val_loss"] == [pytest.approx(expected[0], abs=1e-6)]
    held_out = classifier.evaluate(TEXTS[3:], NAMES[3:], verbose=0)[0]
    for sample_weight in (None, form([1.0, 2.0, 3.0, 1.0, 1.0, 1.0])):
        history = classifier.fit(x, y, verbose=0, validation_split=0.5, sample_weight=sample_weight).history
        assert history["val_loss"] == [pytest.approx(held_out, abs=1e-6)]
    pairs = (form(TEXTS), form(TEXTS[::-1]))
    expected = classifier.evaluate(list(zip(TEXTS, TEXTS[::-1], strict=True)), NAMES, verbose=0)
    assert classifier.evaluate(pairs, y, verbose=0) == expected


def test_other_tasks_read_columns(tiny_backbone, tokenizer):
    tagger = TokenClassifier(tiny_backbone(), labels=["O", "B"], tokenizer=tokenizer)
    reader = QuestionAnswerer(tiny_backbone(), tokenizer=tokenizer)
    chooser = MultipleChoice(tiny_backbone(), tokenizer=tokenizer)
    embedder = TextEmbedder(tiny_backbone(), objective="cosine", tokenizer=tokenizer)
    questions, contexts = (list(side) for side in zip(*QUESTIONS, strict=True))
    starts, choices = (list(side) for side in zip(*CHOICES, strict=True))
    pairs, scores = list(zip(TEXTS, TEXTS[::-1], strict=True)), [0.5, -0.5] * 3
    for model, x, y, columns, targets in (
        (tagger, WORDS, TAGS, series(WORDS), series(TAGS)),
        (tagger, WORDS, TAGS, pa.array(WORDS), pa.array(TAGS)),
        (tagger, WORDS, TAGS, [np.array(words) for words in WORDS], series([np.array(tags) for tags in TAGS])),
        (reader, QUESTIONS, ANSWERS, (series(questions), pa.array(contexts)), series(ANSWERS)),
        (reader, QUESTIONS, ANSWERS, pd.DataFrame(QUESTIONS).to_numpy(), ANSWERS),
        (chooser, CHOICES, [0, 1] * 2, (pa.array(starts), series(choices)), series([0, 1] * 2)),
        (embedder, pairs, scores, (series(TEXTS), Series(TEXTS[::-1])), pa.array(scores)),
    ):
        model.compile(keras.optimizers.SGD(0.0))
        expected = model.evaluate(x, y, verbose=0)
        assert model.evaluate(columns, targets, verbose=0) == expected
        history = model.fit(columns, targets, verbose=0, validation_data=(columns, targets)).history
        total = expected[0] if isinstance(expected, list) else expected
        assert history["val_loss"] == [pytest.approx(total, abs=1e-5)]
        assert len(model.fit(columns, targets, verbose=0, validation_split=0.5).history["val_loss"]) == 1
    assert tagger.tag(series(WORDS)) == tagger.tag(WORDS)
    assert reader.answer((series(questions[:2]), series(contexts[:2]))) == reader.answer(QUESTIONS[:2])
    assert chooser.choose((series(starts), series(choices))) == chooser.choose(CHOICES)
    np.testing.assert_array_equal(embedder.embed(series(TEXTS)), embedder.embed(TEXTS))
    several = MultiTask(tiny_backbone(), {"a": {"labels": ["no", "yes"]}}, tokenizer=tokenizer)
    several.compile(keras.optimizers.SGD(0.0))
    expected = several.evaluate({"a": (TEXTS, NAMES)}, verbose=0)
    assert several.evaluate({"a": (series(TEXTS), pa.array(NAMES))}, verbose=0) == expected


def test_language_models_and_tokenizers_read_columns(tiny_backbone, tokenizer):
    config = GPT2Config(vocabulary_size=tokenizer.vocabulary_size, num_layers=1, num_heads=1, hidden_dim=4)
    writer = CausalLM(GPT2(config), tokenizer=tokenizer)
    filler = MaskedLM(tiny_backbone(), tokenizer=tokenizer)
    masked = [f"{text} [MASK]" for text in TEXTS]
    for form in (series, pa.array, Series):
        x = form(TEXTS)
        assert writer.generate(x, max_new_tokens=2) == writer.generate(TEXTS, max_new_tokens=2)
        assert writer.score(x, x) == writer.score(TEXTS, TEXTS)
        assert filler.fill_mask(form(masked)) == filler.fill_mask(masked)
        assert [ids.tolist() for ids in tokenizer.encode(x)] == [ids.tolist() for ids in tokenizer.encode(TEXTS)]
        assert Corpus.in_memory(x, tokenizer).num_documents == 6
        assert len(filler.fit(x, verbose=0, batch_size=1, validation_data=x).history["val_loss"]) == 1


def tables():
    import datasets

    data = {"text": TEXTS, "label": NAMES}
    frame = pd.DataFrame(data, index=INDEX)
    table = pa.table(data)
    return [frame, table, table.to_batches()[0], Frame(data), frame.to_records(), datasets.Dataset.from_dict(data)]


@pytest.mark.parametrize("table", tables(), ids=lambda table: f"{type(table).__module__}.{type(table).__name__}")
def test_a_table_is_refused_by_the_name_of_its_column(table, classifier, tiny_backbone, tokenizer):
    """Python would read it as the names of its columns, or as the columns themselves."""
    embedder = TextEmbedder(tiny_backbone(), tokenizer=tokenizer)
    tagger = TokenClassifier(tiny_backbone(), tokenizer=tokenizer)
    filler = MaskedLM(tiny_backbone(), tokenizer=tokenizer)
    message = r"""must hold the \w+. Received: a \w+ with the columns (index, )?text, label. Use (df|dataset)\[.text"""
    for call in (
        lambda: classifier.fit(table, NAMES, verbose=0),
        lambda: classifier.fit(table, verbose=0),
        lambda: classifier.fit(TEXTS, NAMES, validation_data=table, verbose=0),
        lambda: classifier.fit(TEXTS, NAMES, validation_data=(table, NAMES), verbose=0),
        lambda: classifier.evaluate(table, NAMES, verbose=0),
        lambda: classifier.predict(table, verbose=0),
        lambda: classifier.classify(table),
        lambda: embedder.embed(table),
        lambda: tagger.tag(table),
        lambda: filler.fill_mask(table),
        lambda: filler.score(table),
        lambda: filler.fit(table, verbose=0),
        lambda: tokenizer.encode(table),
        lambda: Tokenizer.train("wordpiece", table, vocabulary_size=60),
        lambda: Corpus.in_memory(table, tokenizer),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match=r"must hold the targets. .* Use (df|dataset)\[.label"):
        classifier.fit(TEXTS, table, verbose=0)


def test_other_data_that_python_would_read_wrongly(classifier, tokenizer):
    with pytest.raises(ValueError, match=r'a dict with the columns text, label. Use df\["text"\]'):
        classifier.predict({"text": TEXTS, "label": NAMES}, verbose=0)
    with pytest.raises(ValueError, match="The targets must be a list or an array. Received: a generator"):
        classifier.fit(TEXTS, (name for name in NAMES), verbose=0)
    with pytest.raises(ValueError, match="contain their targets. Received: y"):
        classifier.evaluate(iter([(TEXTS, NAMES)]), NAMES, verbose=0)
    with pytest.raises(ValueError, match="must be an iterable of str, .* Received: a single dict"):
        Tokenizer.train("wordpiece", {"text": TEXTS}, vocabulary_size=60)
    with pytest.raises(ValueError, match="`texts` must be a list of str. Received: one dict"):
        tokenizer.encode({"a": 1})


def test_a_table_of_labels(tiny_backbone, tokenizer):
    model = TextClassifier(tiny_backbone(), labels=["a", "b"], problem="labels", tokenizer=tokenizer)
    model.compile(keras.optimizers.SGD(0.0))
    rows = [[1, 0], [0, 1], [1, 1]] * 2
    table = pd.DataFrame({"b": [row[1] for row in rows], "a": [row[0] for row in rows]}, index=INDEX)
    expected = model.evaluate(TEXTS, rows, verbose=0)
    assert model.evaluate(TEXTS, table, verbose=0) == expected
    history = model.fit(TEXTS, table, verbose=0, validation_split=0.5).history
    assert history["val_loss"] == [pytest.approx(model.evaluate(TEXTS[3:], rows[3:], verbose=0)[0], abs=1e-6)]
