"""The texts of `run.py`: what every recipe is trained and measured on, written as corpora the first time.

"english" is 4 MB of novels, one paragraph a line, measured on two others. "novels" are whole files, one document each
and one sentence a line, for pairs of segments: those of every fourth author are held out. Of German and French novels
the last two are held out. "captions" and "tasks" are documents of two lines, a source and its target.
"""

import csv
import hashlib
import os
import re
import tempfile
from pathlib import Path

from kerasbert.data import Corpus, Tokenizer, parallel_documents, read_documents
from kerasbert.data.tasks import text_to_text
from kerasbert.data.text.cleaning import split_sentences

VOCABULARY = 8_000
VOCABULARY_TEXT = 5_000_000  # characters of each corpus that the tokenizer is trained on, about
HELD_OUT_AUTHORS = slice(1, None, 4)
HELD_OUT_NOVELS = 2  # of a language
FEWER = 5  # of the English novels, every fifth is among the languages, so that all have about as much text
HELD_OUT_REVIEWS = 1_000
FILES = {
    "de": "pretraining/lm_de_5mb.txt",
    "en": "pretraining/lm_en_5mb.txt",
    "fr": "pretraining/lm_fr_5mb.txt",
    "en, held out": "pretraining/lm_en_valid.txt",
}
NOVELS = "pretraining/en_novels"
PAIRS = {"de-en": "parallel/tatoeba/tatoeba.deu-eng", "en-fr": "parallel/tatoeba/tatoeba.fra-eng"}
ALONE = {"german": "de", "french": "fr"}
SUFFIXES = {"de": "deu", "en": "eng", "fr": "fra"}

# Recipe, or family -> (text, kind of tokenizer, family of its special tokens); otherwise English and WordPiece.
TEXTS = {
    "albert": ("novels", "unigram", "albert"),
    "bert": ("novels", "wordpiece", None),
    "bart": ("english", "byte_bpe", None),
    "biobert": ("novels", "wordpiece", None),
    "camembert": ("french", "unigram", None),
    "distilbert": ("novels", "wordpiece", None),  # the teacher has pairs of segments
    "eurobert": ("english", "byte_bpe", None),
    "gpt2": ("english", "byte_bpe", None),
    "gpt_bert": ("english", "byte_bpe", "gpt_bert"),
    "mbert": ("novels in languages", "wordpiece", None),
    "mobilebert": ("novels", "wordpiece", None),
    "mpnet": ("english", "wordpiece", "mpnet"),
    "modernbert": ("english", "byte_bpe", None),
    "roberta": ("english", "byte_bpe", None),
    "seq2seq_attention": ("captions", "wordpiece", None),
    "t5": ("english", "unigram", "t5"),
    "t5.tiny_multitask": ("tasks", "unigram", "t5"),
    "transformer": ("captions", "wordpiece", None),
    "xlm": ("languages", "wordpiece", None),
    "xlm.tiny_tlm": ("languages and pairs", "wordpiece", None),
    "xlm_roberta": ("languages", "unigram", None),
    "xlnet": ("english", "unigram", "xlnet"),
}
SPLITS = ("train", "held_out")
Documents = tuple[list[str], list[str]]  # to train on, held out


def text_of(recipe: str, text: str = "", tokenizer: str = "") -> tuple[str, str, str | None]:
    """(text, kind of tokenizer, family of its special tokens) of a recipe, unless others are asked for."""
    usual = TEXTS.get(recipe) or TEXTS.get(recipe.partition(".")[0]) or ("english", "wordpiece", None)
    kind = tokenizer or usual[1]
    return text or usual[0], kind, usual[2] if kind == usual[1] else None


def corpora_of(recipe: str, data: Path, work: Path, text: str = "", tokenizer: str = "") -> tuple[dict, dict]:
    """Corpora by name, to train on and held out. A folder appears only when all its corpora are complete.

    Args:
        recipe: name of the recipe.
        data: folder of the texts.
        work: folder for the corpora.
        text, tokenizer: instead of the usual ones of the recipe.
    """
    text, kind, special = text_of(recipe, text, tokenizer)
    folder = work / "-".join([text.replace(" ", "_"), kind, *([special] if special else [])])
    if not folder.exists():
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work) as temporary:
            write(documents_of(text, data), Path(temporary) / "new", kind, special)
            if not folder.exists():  # another process may have been faster
                os.rename(Path(temporary) / "new", folder)
    opened = [{path.name: Corpus.open(path) for path in sorted((folder / split).iterdir())} for split in SPLITS]
    return opened[0], opened[1]


def write(documents: dict[str, Documents], folder: Path, kind: str, special: str | None) -> None:
    """Trains a tokenizer on some of the training text, and writes a corpus of every text."""
    sample = []
    for training, _ in documents.values():
        sample += training[:: max(1, sum(map(len, training)) // VOCABULARY_TEXT)]
    tokenizer = Tokenizer.train(kind, sample, VOCABULARY, lowercase=kind == "wordpiece", family=special)
    for name, splits in documents.items():
        for split, found in zip(SPLITS, splits, strict=True):
            if found:
                Corpus.write(folder / split / name, found, tokenizer)


# === Documents ===


def documents_of(text: str, data: Path) -> dict[str, Documents]:
    """The documents of each corpus of a text.

    Raises:
        ValueError: there is no text of this name.
    """
    if text == "english":
        return {"en": tuple(list(read_documents(data / FILES[name])) for name in ("en", "en, held out"))}
    if text in ALONE:
        return {ALONE[text]: novels_in(ALONE[text], data)}
    if text == "novels":
        return {"en": english_novels(data)}
    if text == "novels in languages":
        training, held_out = english_novels(data)
        others = {language: tuple(map(sentences, novels_in(language, data))) for language in ("de", "fr")}
        return {**others, "en": (training[::FEWER], held_out)}
    if text in ("languages", "languages and pairs"):
        parts = {"en": documents_of("english", data)["en"]}
        parts |= {language: novels_in(language, data) for language in ("de", "fr")}
        if text.endswith("pairs"):
            for name, prefix in PAIRS.items():
                sides = [lines(data / f"{prefix}.{SUFFIXES[end]}") for end in name.split("-")]
                parts[name] = (list(parallel_documents(*sides)), [])
        return parts
    if text == "captions":
        folder = data / "parallel" / "multi30k"
        splits = [[lines(folder / f"{split}.{end}") for end in ("de", "en")] for split in ("train", "val")]
        return {"de-en": tuple(list(parallel_documents(*sides)) for sides in splits)}
    if text == "tasks":
        return {"text": documents_of("english", data)["en"], **tasks(data)}
    raise ValueError(
        "There are the texts english, german, french, novels, novels in languages, languages, languages and pairs, "
        f"captions and tasks. Received: {text!r}."
    )


def english_novels(data: Path) -> Documents:
    """One document a file and one sentence a line; every fourth author is held out."""
    paths = sorted((data / NOVELS).glob("*.txt"))
    authors = sorted({path.stem.split("_")[0] for path in paths})[HELD_OUT_AUTHORS]
    found = [[path for path in paths if (path.stem.split("_")[0] in authors) == unseen] for unseen in (False, True)]
    return tuple([novel(path.read_text("utf-8-sig")) for path in split] for split in found)


def novel(text: str) -> str:
    """One sentence a line; blank lines end paragraphs, whose lines may be wrapped.

    "I\\n\\nHe came in\\nand left. Why?" -> "I\\nHe came in and left.\\nWhy?"
    """
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n".join(one for block in paragraphs for one in split_sentences(" ".join(block.split())))


def novels_in(language: str, data: Path) -> Documents:
    """One document a novel and one paragraph a line."""
    found = list(read_documents(data / FILES[language]))
    return found[:-HELD_OUT_NOVELS], found[-HELD_OUT_NOVELS:]


def sentences(documents: list[str]) -> list[str]:
    """The documents with one sentence a line in the place of one paragraph."""
    return ["\n".join(one for line in document.splitlines() for one in split_sentences(line)) for document in documents]


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def tasks(data: Path) -> dict[str, Documents]:
    """Three small tasks in the formats of T5: entailment of an answer, similarity, sentiment."""
    names = text_to_text.LABELS["qnli"]
    splits = {"qnli": [], "stsb": [], "sst2": []}
    for split in ("train", "dev"):
        rows = (line.split("\t") for line in lines(data / "classification" / f"qnli_{split}.tsv")[1:])
        examples = [dict(question=row[1], sentence=row[2], label=names.index(row[3])) for row in rows]
        splits["qnli"].append([text_to_text.classification_text("qnli", example) for example in examples])
        with open(data / "similarity" / f"stsb-en-{split}.csv", newline="", encoding="utf-8") as file:
            examples = [dict(sentence1=row[0], sentence2=row[1], label=row[2]) for row in csv.reader(file)]
        splits["stsb"].append([text_to_text.similarity_text(example) for example in examples])
    reviews = (data / "classification" / "movie_reviews.latin1.txt").read_text("latin-1").splitlines()
    reviews = sorted(
        (line for line in reviews if line[:2] in ("0 ", "1 ")), key=lambda line: hashlib.sha256(line.encode()).digest()
    )
    examples = [dict(sentence=line[2:], label=int(line[0])) for line in reviews]
    texts = [text_to_text.classification_text("sst2", example) for example in examples]
    splits["sst2"] = [texts[:-HELD_OUT_REVIEWS], texts[-HELD_OUT_REVIEWS:]]
    return {
        name: tuple(list(parallel_documents(*zip(*pairs, strict=True))) for pairs in found)
        for name, found in splits.items()
    }
