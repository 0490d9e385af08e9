"""Copies of a corpus in which every line, or every sentence, is a document, so that no row holds more than one."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np

from kerasbert.data import Corpus
from kerasbert.data.corpus.megatron import EncodedDocuments, PairWriter

STOPS = {".", "?", "!"}
CLOSING = {'"', "'", "”", "’", ")"}
TITLES = {"mr", "mrs", "dr", "st"}  # a full stop after one of them ends no sentence


def divided(corpus: Corpus, unit: str, work: Path) -> Corpus:
    """The same tokens, with a document for every unit of text; written the first time.

    Args:
        unit: "lines", "sentences", or "" for the corpus as it is.
        work: folder for the copies.
    """
    if not unit:
        return corpus
    folder = work / f"{unit}-{corpus.fingerprint}"
    if not folder.exists():
        lengths = sentence_lengths(corpus) if unit == "sentences" else np.array(corpus.lengths)
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work) as temporary:
            copy = Path(shutil.copytree(corpus.folder, Path(temporary) / "copy", ignore=lambda *_: ["plans"]))
            with PairWriter(copy / "corpus", corpus.tokens.dtype) as writer:
                writer.append(EncodedDocuments(corpus.tokens, lengths.astype(np.int32), np.ones(len(lengths), int)))
            record = json.loads((copy / "corpus.json").read_text())
            record |= {"num_sequences": len(lengths), "num_documents": len(lengths)}
            (copy / "corpus.json").write_text(json.dumps(record))
            if not folder.exists():  # another process may have been faster
                os.rename(copy, folder)
    return Corpus.open(folder)


def sentence_lengths(corpus: Corpus) -> np.ndarray:
    """The number of tokens in every sentence, int64; no sentence goes beyond its line.

    one . " two ! " mr . three -> 3 3 3
    """
    tokens = np.asarray(corpus.tokens)
    pieces = [re.sub("^[Ġ▁]", "", token).lower() for token in corpus.tokenizer().tokens]
    stops, closing, titles = (np.isin(pieces, list(known)) for known in (STOPS, CLOSING, TITLES))
    stop = stops[tokens]
    stop[1:] &= ~titles[tokens[:-1]]
    signs = stop | closing[tokens]
    first = np.flatnonzero(signs & ~np.append(False, signs[:-1]))  # of every run of signs
    last = np.flatnonzero(signs & ~np.append(signs[1:], False))
    total = np.append(0, np.cumsum(stop))
    ends = last[total[last + 1] > total[first]] + 1
    cuts = np.unique(np.concatenate([ends, corpus.sequence_starts, [len(tokens)]]))
    return np.diff(cuts)
