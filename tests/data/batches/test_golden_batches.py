"""The batches of all kinds, bit for bit: a run that is interrupted in one version resumes in the next one.

After a deliberate change, which belongs into CHANGELOG.md, write the new hashes with
`python -m tests.data.batches.test_golden_batches`.
"""

import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

import kerasbert.data
from kerasbert.data import Corpus, Tokenizer
from tests.conftest import REPOSITORY
from tests.data.batches.objects import batches_of

pytestmark = pytest.mark.one_backend

GOLDEN = REPOSITORY / "tests" / "goldens" / "batches.json"
RULES = ("bert", "roberta", "xlm", "modernbert", "deberta", "deberta_anywhere")
ROWS = (
    *("chunks", "known_chunks", "segment_pairs", "sentence_pairs", "sentence_order", "segments", "full_sentences"),
    *("doc_sentences", "stream", "packed"),
)
PHRASES = np.array([[start, start + 3] for start in range(10, 900, 11)])
MASKS = (
    *(dict(whole_words=True), dict(ngrams=3), dict(ngrams=(0.2, 0.8)), dict(rare_exponent=0.7)),
    *(dict(mask_rate=0.4, max_predictions=5), dict(whole_words=True, rows="packed"), dict(rows="stream")),
)
OBJECTIVES = ("random_spans", "replace_spans", "drop_tokens", "bert", "mass", "deshuffling", "prefix_lm", "lm")
# (class, name of the corpus, settings)
CASES = [
    *(("MaskedLMBatches", kind, dict(rows=rows)) for kind in ("wordpiece", "roberta") for rows in ROWS),
    *(("MaskedLMBatches", "unigram", dict(rule=rule, **masks)) for rule in RULES for masks in MASKS),
    ("MaskedLMBatches", "wordpiece", dict(static_masks=True, dupe_factor=2)),
    ("MaskedLMBatches", "wordpiece", dict(shares=(0.5, 0.2), language=1)),
    ("MaskedLMBatches", "wordpiece", dict(rows="sentence_order", lone_sentences="random", accumulation=2)),
    ("ReplacedTokenBatches", "wordpiece", {}),
    ("ReplacedTokenBatches", "wordpiece", dict(with_replacement=True)),
    ("ReplacedTokenBatches", "unigram", dict(mask_share=1.0, ngrams=3, rule="deberta")),
    ("ReplacedTokenBatches", "xlnet", dict(rows="segments", mask_rate=0.25)),
    *(("SpanMaskBatches", "wordpiece", dict(scheme=scheme)) for scheme in ("spans", "words", "pieces")),
    ("SpanMaskBatches", "wordpiece", dict(whole_sentences=False, phrases=PHRASES)),
    ("SpanMaskBatches", "xlnet", dict(geometric=0.5, longest=3, mask_rate=0.3, max_targets=2)),
    ("MaskedPermutedLMBatches", "wordpiece", {}),
    ("MaskedPermutedLMBatches", "unigram", dict(rule="roberta", whole_words=True, rows="packed", accumulation=2)),
    ("HybridLMBatches", "roberta", dict(causal_share=0.3)),
    ("HybridLMBatches", "wordpiece", dict(rows="chunks", causal_targets=4, accumulation=2)),
    ("RetroMAEBatches", "wordpiece", {}),
    ("TSDAEBatches", "roberta", {}),
    ("WholeTextBatches", "wordpiece", {}),
    ("TranslationLMBatches", "pairs", {}),
    ("TranslationLMBatches", "pairs", dict(packed=True, rule="bert", both_orders=False)),
    ("PermutationLMBatches", "xlnet", {}),
    ("PermutationLMBatches", "xlnet", dict(reuse_length=0, whole_words=True)),
    ("PermutationLMBatches", "xlnet", dict(bidirectional_data=True, partial_prediction=3, max_predictions=9)),
    ("PermutationLMBatches", "xlnet", dict(permutation_size=5, max_span=2)),
    *(("DenoisingBatches", "t5", dict(objective=objective, layout="causal")) for objective in OBJECTIVES),
    *(("DenoisingBatches", "t5", dict(objective=objective)) for objective in OBJECTIVES[:-1]),
    ("DenoisingBatches", "t5", dict(packed=True)),
    ("DenoisingBatches", "t5", dict(objective="prefix_lm", layout="prefix", packed=True)),
    ("DenoisingBatches", "t5", dict(rate=0.4, mean_span=2.0, roll=True, group=3, start_id=7)),
    ("DenoisingBatches", "t5", dict(layout="prefix", targets_only=False, packed=True)),
    ("CausalLMBatches", "roberta", {}),
    ("CausalLMBatches", "roberta", dict(lines=True)),
    ("StreamBatches", "wordpiece", {}),
    ("SkipGramBatches", "wordpiece", {}),
    ("BidirectionalLMBatches", "wordpiece", {}),
]


def documents(seed, count, sentences):
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(list("etaoinshrdlu"), random.integers(2, 9))) for _ in range(400)]

    def line():
        return " ".join(random.choice(words, random.integers(1, 25))) + "."

    return ["\n".join(line() for _ in range(random.integers(*sentences))) for _ in range(count)]


def corpora(folder):
    text, lines = documents(0, 40, (2, 12)), documents(1, 60, (2, 3))
    tokenizers = {
        "wordpiece": Tokenizer.train("wordpiece", text, 300),
        "unigram": Tokenizer.train("unigram", text, 200, family="albert"),
        "t5": Tokenizer.train("unigram", text, 300, family="t5"),
        "roberta": Tokenizer.train("byte_bpe", text, 320, family="roberta"),
        "xlnet": Tokenizer.train("unigram", text, 200, family="xlnet"),
    }
    found = {name: Corpus.write(folder / name, text, tokenizer) for name, tokenizer in tokenizers.items()}
    return {**found, "pairs": Corpus.write(folder / "pairs", lines, tokenizers["wordpiece"])}


def arrays(value, name=""):
    """The arrays of a batch, in order, with their names."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from arrays(value[key], f"{name}.{key}")
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield from arrays(part, f"{name}{number}")
    elif value is not None:
        yield name, np.ascontiguousarray(value)


def digest(batches):
    """A hash of every third batch."""
    found = hashlib.sha256()
    for step in range(0, len(batches), 3):
        for name, array in arrays(batches[step]):
            found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()[:12]


def hashes(folder):
    texts, found = corpora(folder), {}
    for name, kind, settings in CASES:
        cls = getattr(kerasbert.data, name)
        seed = {} if name == "StreamBatches" else {"seed": 3}  # streams have no order
        options = {key: value for key, value in settings.items() if key != "accumulation"}
        batches = batches_of(cls, texts[kind], 6, 40, steps=30, **seed, **options)
        batches = batches.accumulated(settings.get("accumulation", 1))
        shown = {key: "phrases" if key == "phrases" else value for key, value in settings.items()}
        found[f"{name}, {kind}, {shown}"] = digest(batches)
    return found


def test_batches_are_unchanged(tmp_path):
    golden, found = json.loads(GOLDEN.read_text(encoding="utf-8")), hashes(tmp_path)
    assert golden.keys() == found.keys()
    changed = [name for name in golden if golden[name] != found[name]]
    assert not changed, changed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        GOLDEN.write_text(json.dumps(hashes(Path(path)), indent=0) + "\n", encoding="utf-8")
