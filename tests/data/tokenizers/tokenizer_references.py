"""Folders of published tokenizers, and comparison with the classes of transformers that read them."""

import json

from kerasbert.data import Tokenizer
from kerasbert.data.text import moses
from kerasbert.data.tokenizers.families import FAMILIES
from kerasbert.data.tokenizers.sentencepiece import CONTROL, UNKNOWN, SentencePieceModel, model_bytes

UNK = [("<unk>", 0.0, UNKNOWN)]

BOS_EOS = [("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]

# The special pieces in front of each family's model, and the class of transformers that reads it.
PUBLISHED = {
    "albert": (["<pad>", *UNK, "[CLS]", "[SEP]", "[MASK]"], "AlbertTokenizer"),
    "xlnet": ([*UNK, "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"], "XLNetTokenizer"),
    "t5": (["<pad>", "</s>", *UNK], "T5Tokenizer"),
    "xlm-roberta": ([*UNK, "<s>", "</s>"], "XLMRobertaTokenizer"),
    "camembert": ([*UNK, "<s>", "</s>"], "CamembertTokenizer"),
    "deberta-v2": (["[PAD]", "[CLS]", "[SEP]", ("[UNK]", 0.0, UNKNOWN)], None),
}


def write_family(folder, family, pieces, charsmap=b"", **settings):
    """A folder as it was published: a SentencePiece model and a config."""
    front = [piece if isinstance(piece, tuple) else (piece, 0.0, CONTROL) for piece in PUBLISHED[family][0]]
    folder.mkdir(exist_ok=True)
    (folder / FAMILIES[family].file).write_bytes(model_bytes(SentencePieceModel(front + pieces, charsmap=charsmap)))
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def their_class(name):
    import transformers

    transformers.utils.logging.set_verbosity_error()
    return getattr(transformers, name)


def assert_same_ids(ours, theirs, lines, pairs=60):
    found = [row.tolist() for row in ours.encode(lines)]
    wanted = theirs(list(lines))["input_ids"]
    different = [line for line, one, other in zip(lines, found, wanted, strict=True) if one != other]
    assert not different, (len(different), different[:3])
    if not pairs:
        return
    first, second = list(lines[:pairs]), list(lines[pairs : 2 * pairs])
    found = [row.tolist() for row in ours.encode(list(zip(first, second, strict=True)))]
    assert found == theirs(first, second)["input_ids"]


def assert_written_folder_is_the_same(ours, lines, folder):
    """transformers reads what we write, and so do we, with and without tokenizer.json."""
    ours.save(folder)
    assert_same_ids(ours, their_class("AutoTokenizer").from_pretrained(folder), lines)
    again = Tokenizer.load(folder)
    assert again.hash == ours.hash and again.info == ours.info and again.tokens == ours.tokens
    assert again.family == ours.family
    asset = Tokenizer.from_json(ours.to_json())
    assert asset.hash == ours.hash and asset.info == ours.info
    return again


# Family -> its kind, whether it has lost its case, and the class of transformers that reads its vocabulary.
TRAINED = {
    "bert": ("wordpiece", True, "BertTokenizer"),
    "electra": ("wordpiece", False, "ElectraTokenizer"),
    "roberta": ("byte_bpe", False, "RobertaTokenizer"),
    "gpt2": ("byte_bpe", False, "GPT2Tokenizer"),
    "deberta": ("byte_bpe", False, "DebertaTokenizer"),
    "xlm": ("bpe", True, "XLMTokenizer"),
}


def check_moses(lines):
    theirs = their_class("XLMTokenizer")
    probe = theirs.__new__(theirs)
    import sacremoses

    probe.sm, probe.cache_moses_punct_normalizer, probe.cache_moses_tokenizer = sacremoses, {}, {}
    wanted = [" ".join(probe.moses_tokenize(probe.moses_pipeline(line, lang="en"), lang="en")) for line in lines]
    found = [moses.prepare(line, lowercase=False) for line in lines]
    different = [line for line, one, other in zip(lines, found, wanted, strict=True) if one != other]
    assert not different, (len(different), different[:3])
