"""Kinds of files for the fuzzer: tables of tagged words, lists of labels in cells, and labels with their names."""

import json

from .mutations import mutate_bytes, mutate_json

WORDS = [["Ann", "lives", "in", "Rome", "."], ["Bob", "'s", "cat"], ["a", "dog"]]
TAGS = [["B-PER", "O", "O", "B-LOC", "O"], ["B-PER", "O", "O"], ["O", "O"]]
LABELS = [["good", "new"], ["old"], [], ["good"]]


def _joined(text):
    """The text without white space and quotes, which are doubled in cells."""
    return "".join(text.split()).replace('"', "")


# === Tagged words ===


def _make_words(folder):
    lines = ["sentence_id,word,ner"]
    for number, (words, tags) in enumerate(zip(WORDS, TAGS, strict=True)):
        lines += [f"{number},{word},{tag}" for word, tag in zip(words, tags, strict=True)]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")


def _make_sentences(folder):
    rows = [f'"{words}"\t"{tags}"' for words, tags in zip(WORDS, TAGS, strict=True)]
    (folder / "data.tsv").write_text("tokens\tner_tags\n" + "\n".join(rows) + "\n")


def _make_rows(folder):
    rows = ({"tokens": words, "ner_tags": str(tags)} for words, tags in zip(WORDS, TAGS, strict=True))
    (folder / "data.json").write_text(json.dumps(list(rows)))


def _read_tags(name):
    def read(folder):
        from pipelines.reading.examples import read_examples

        found = read_examples("tags", folder / name)
        return found.x, found.y

    return read


def _check_tags(folder, found, valid):
    """A tag for every word."""
    from .kinds import expect

    for words, tags in zip(*found, strict=True):
        expect(len(words) == len(tags), f"{len(words)} words with {len(tags)} tags")


# === Several labels a text ===


def _make_labels(folder):
    rows = [f'text {number},"{labels}"' for number, labels in enumerate(LABELS)]
    (folder / "data.csv").write_text("text,labels\n" + "\n".join(rows) + "\n")


def _read_labels(folder):
    from pipelines.reading.examples import read_examples

    return read_examples("labels", folder / "data.csv").y


def _check_labels(folder, found, valid):
    from .kinds import expect

    text = _joined((folder / "data.csv").read_bytes().decode("utf-8-sig", "replace"))
    for labels in found:
        expect(isinstance(labels, list), f"labels {labels!r}")
        for label in labels:
            there = _joined(label) in text or label.startswith("LABEL_")
            expect(there or "\\" in text, f"a label that is not there: {label!r:.80}")


# === Names of labels ===


def _make_names(folder):
    content = {"labels": [1, 0, 5], "y": [5, 1, 0, 0], "dict": {"0": "neg", "1": "pos"}, "z": ["pos", 0, 1]}
    (folder / "labels.json").write_text(json.dumps(content))


def _read_names(folder):
    from kerasbert.data.tasks.labels import indices_of, names_of
    from kerasbert.data.text.json_files import read_json

    content = read_json(folder / "labels.json")
    pairs = [(names_of(content.get(one)), content.get(other)) for one, other in (("labels", "y"), ("dict", "z"))]
    return [(names, labels, indices_of(names, labels).tolist()) for names, labels in pairs]


def _check_names(folder, found, valid):
    """Every index is that of a label's name, or the label itself if names are str."""
    from .kinds import expect

    for names, labels, indices in found:
        expect(len(labels) == len(indices), "labels without an index")
        for label, index in zip(labels, indices, strict=True):
            named = label in names and names.index(label) == index
            expect(named or (isinstance(names[0], str) and label == index), f"{label!r} of {names} is {index}")


def table_kinds(kind):
    """Returns {name: kind}, made by the class `kind`."""
    return {
        "tagged_words": kind(_make_words, _read_tags("data.csv"), _check_tags, {"data.csv": mutate_bytes}),
        "tagged_sentences": kind(_make_sentences, _read_tags("data.tsv"), _check_tags, {"data.tsv": mutate_bytes}),
        "tagged_rows": kind(_make_rows, _read_tags("data.json"), _check_tags, {"data.json": mutate_json}),
        "label_lists": kind(_make_labels, _read_labels, _check_labels, {"data.csv": mutate_bytes}),
        "label_names": kind(_make_names, _read_names, _check_names, {"labels.json": mutate_json}),
    }
