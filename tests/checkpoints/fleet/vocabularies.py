"""The files of tiny tokenizers, of each kind that published checkpoints have.

Each function returns {name of a file: its content}. They are written with the library `tokenizers` alone, in the form
of the published files.
"""

import functools
import json
import tempfile
from pathlib import Path

import sentencepiece
import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers.sentencepiece import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    SentencePieceModel,
    model_bytes,
    read_model,
)
from tests.checkpoints.fleet.texts import LEARNT_FROM

BRACKETS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ANGLES = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
NO_LIMIT = 1000000000000000019884624838656


def tokens_of(roles, mask_takes_space=False):
    """Returns {"pad_token": "[PAD]", ...}. The mask may take the space before it."""
    found = {f"{role}_token": token for role, token in roles.items()}
    if mask_takes_space:
        mask = dict(content=roles["mask"], lstrip=True, normalized=False, rstrip=False, single_word=False)
        found["mask_token"] = {**mask, "__type": "AddedToken"}
    return found


def listed(backend):
    """`added_tokens_decoder`, as versions 4.34 and later have written it."""
    names = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    return {
        str(index): {name: getattr(token, name) for name in names}
        for index, token in sorted(backend.get_added_tokens_decoder().items())
    }


def mark(backend, tokens, mask=None):
    backend.add_special_tokens([hf.AddedToken(t, normalized=False, special=True, lstrip=t == mask) for t in tokens])


def template(backend, single, pair):
    named = {t for t in f"{single} {pair}".replace(":1", "").split() if not t.startswith("$")}
    ids = [(token, backend.token_to_id(token)) for token in sorted(named)]
    backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)


def whole(backend):
    return json.dumps(json.loads(backend.to_str()), ensure_ascii=False, indent=2)


# === WordPiece ===


@functools.cache
def learnt_wordpiece(lowercase):
    backend = hf.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=700, show_progress=False, special_tokens=special)
    backend.train_from_iterator(LEARNT_FROM, trainer)
    return backend.get_vocab()


def wordpiece_backend(vocabulary, roles, options, single, pair, mask=None):
    backend = hf.Tokenizer(models.WordPiece(vocabulary, unk_token=roles["unk"], max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(**options)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    mark(backend, sorted(set(roles.values()), key=vocabulary.__getitem__), mask)
    template(backend, single, pair)
    return backend


def as_lines(vocabulary):
    return "".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.__getitem__))


def bert(lowercase=True, whole_file=True, limits=False, settings=None, chinese=True, segments=True):
    """BERT's files. Some published `tokenizer.json` also truncate and pad: `limits`, as in all-MiniLM-L6-v2."""
    vocabulary = learnt_wordpiece(lowercase)
    files = {"vocab.txt": as_lines(vocabulary)}
    if whole_file:
        options = dict(lowercase=lowercase, strip_accents=None, handle_chinese_chars=chinese)
        second = ":1" if segments else ""
        row = ("[CLS] $A [SEP]", f"[CLS] $A [SEP] $B{second} [SEP]{second}")
        backend = wordpiece_backend(vocabulary, BRACKETS, options, *row)
        if limits:
            backend.enable_truncation(12)
            backend.enable_padding(length=12)
        files["tokenizer.json"] = whole(backend)
    if settings is not None:
        files["tokenizer_config.json"] = json.dumps(settings)
    return files


def bert_settings(lowercase=True, **changes):
    """The `tokenizer_config.json` that versions 4.34 and later have written."""
    vocabulary = learnt_wordpiece(lowercase)
    decoder = {
        str(vocabulary[token]): dict(content=token, lstrip=False, normalized=False, rstrip=False, single_word=False,
                                     special=True)
        for token in sorted(BRACKETS.values(), key=vocabulary.__getitem__)
    }  # fmt: skip
    return {
        **dict(added_tokens_decoder=decoder, clean_up_tokenization_spaces=True, do_basic_tokenize=True),
        **dict(do_lower_case=lowercase, model_max_length=512, never_split=None, strip_accents=None),
        **dict(tokenize_chinese_chars=True, tokenizer_class="BertTokenizer"),
        **tokens_of(BRACKETS),
        **changes,
    }


def mpnet():
    """BERT's vocabulary between the tokens of fairseq. The mask takes the space before it."""
    front = ["<s>", "<pad>", "</s>", "<unk>"]
    inner = [token for token in as_lines(learnt_wordpiece(True)).split("\n") if token]
    vocabulary = {token: index for index, token in enumerate([*front, *inner, "<mask>"])}
    roles = {**ANGLES, "unk": "[UNK]"}
    options = dict(lowercase=True, strip_accents=None, handle_chinese_chars=True)
    row = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
    backend = wordpiece_backend(vocabulary, roles, options, *row, mask="<mask>")
    ends = (("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]))
    backend.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    settings = dict(do_lower_case=True, model_max_length=512, tokenize_chinese_chars=True, strip_accents=None)
    named = tokens_of(roles, mask_takes_space=True)
    return {
        "vocab.txt": as_lines(vocabulary),
        "tokenizer.json": whole(backend),
        "tokenizer_config.json": json.dumps({**settings, **named, "tokenizer_class": "MPNetTokenizer"}),
        "special_tokens_map.json": json.dumps(named),
    }


# === Byte-level BPE ===


@functools.cache
def learnt_bytes(front=("<s>", "<pad>", "</s>", "<unk>", "<mask>"), size=500):
    backend = hf.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=list(front), initial_alphabet=alphabet
    )
    backend.train_from_iterator(LEARNT_FROM, trainer)
    content = json.loads(backend.to_str())["model"]
    return content["vocab"], [tuple(pair) for pair in content["merges"]]


def roberta(whole_file=True, settings=None):
    """Ids as in fairseq: the mask is the last token."""
    learned, merges = learnt_bytes()
    tokens = sorted((t for t in learned if t != "<mask>"), key=learned.__getitem__)
    vocabulary = {token: index for index, token in enumerate([*tokens, "<mask>"])}
    text = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges)
    files = {"vocab.json": json.dumps(vocabulary, ensure_ascii=False), "merges.txt": text}
    files["special_tokens_map.json"] = json.dumps(tokens_of(ANGLES, mask_takes_space=True))
    if whole_file:
        backend = hf.Tokenizer(models.BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=""))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
        backend.decoder = decoders.ByteLevel()
        mark(backend, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], mask="<mask>")
        ends = (("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]))
        backend.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
        files["tokenizer.json"] = whole(backend)
    if settings is not None:
        files["tokenizer_config.json"] = json.dumps(settings)
    return files


def modernbert():
    """OLMo's vocabulary: some added tokens are ordinary ones, and the mask takes the space before it."""
    vocabulary, merges = learnt_bytes(front=("|||IP_ADDRESS|||", "<|padding|>"))
    backend = hf.Tokenizer(models.BPE(vocabulary, merges, fuse_unk=False, byte_fallback=False))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    mark(backend, ["<|padding|>"])
    backend.add_tokens([hf.AddedToken("|||IP_ADDRESS|||", normalized=True)])
    mark(backend, ["<|endoftext|>"])
    backend.add_tokens([hf.AddedToken(" " * count, normalized=True) for count in (24, 8, 4, 3, 2)])
    mark(backend, ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"], mask="[MASK]")
    backend.add_tokens([hf.AddedToken(f"[unused{i}]", normalized=True) for i in range(3)])
    template(backend, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")
    settings = {
        **dict(added_tokens_decoder=listed(backend), clean_up_tokenization_spaces=True, model_max_length=8192),
        **dict(model_input_names=["input_ids", "attention_mask"], tokenizer_class="PreTrainedTokenizerFast"),
        **tokens_of(BRACKETS),
    }
    return {
        "tokenizer.json": whole(backend),
        "tokenizer_config.json": json.dumps(settings),
        "special_tokens_map.json": json.dumps(tokens_of(BRACKETS, mask_takes_space=True)),
    }


def eurobert():
    """Llama 3's form: words are split by a pattern, and then the bytes are encoded."""
    vocabulary, merges = learnt_bytes(front=())
    backend = hf.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    pattern = rf"{words}|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = pre_tokenizers.Split(hf.Regex(pattern), "isolated")
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, by_bytes])
    backend.decoder = decoders.ByteLevel()
    roles = {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>", "mask": "<|mask|>", "pad": "<|pad|>"}
    mark(backend, list(roles.values()))
    row = "<|begin_of_text|> $A <|end_of_text|>"
    template(backend, row, f"{row} {row.replace('$A', '$B')}".replace("> <|begin_of_text|> $B", "> $B"))
    settings = {
        **dict(added_tokens_decoder=listed(backend), clean_up_tokenization_spaces=True, model_max_length=NO_LIMIT),
        **dict(model_input_names=["input_ids", "attention_mask"], tokenizer_class="PreTrainedTokenizerFast"),
        **tokens_of(roles),
    }
    return {"tokenizer.json": whole(backend), "tokenizer_config.json": json.dumps(settings)}


def gemma():
    """Gemma 2's form: BPE of whole texts, in which spaces are "▁", with bytes for characters that it lacks."""
    front = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[@BOS@]", "<unused0>", "<unused1>", "<start_of_turn>"]
    further = ["\n", "\n\n", "▁▁", "▁▁▁", "<table>", "</code>"]
    from_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    learner = hf.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(" ", "isolated"), pre_tokenizers.Metaspace(prepend_scheme="never")
    ])  # fmt: skip
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, limit_alphabet=90)
    learner.train_from_iterator(LEARNT_FROM, trainer)
    content = json.loads(learner.to_str())["model"]
    tokens = dict.fromkeys([*front, *further, *from_bytes, *content["vocab"]])
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merges = [("▁", "▁"), ("▁▁", "▁"), ("\n", "\n"), *(tuple(pair) for pair in content["merges"])]
    backend = hf.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    mark(backend, front[:5])
    backend.add_tokens([hf.AddedToken(token, normalized=False) for token in [*front[5:8], *further]])
    mark(backend, front[8:])
    template(backend, "<bos> $A <eos>", "<bos> $A <eos> <bos>:1 $B:1 <eos>:1")
    roles = {"bos": "<bos>", "eos": "<eos>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    settings = {
        **dict(add_bos_token=True, add_eos_token=True, added_tokens_decoder=listed(backend)),
        **dict(additional_special_tokens=["<start_of_turn>"], clean_up_tokenization_spaces=False),
        **dict(model_input_names=["input_ids", "attention_mask"], model_max_length=8192, padding_side="right"),
        **dict(sp_model_kwargs={}, spaces_between_special_tokens=False, tokenizer_class="PreTrainedTokenizerFast"),
        **tokens_of({**roles, "cls": "<bos>", "sep": "<eos>"}),
    }
    return {
        "tokenizer.json": whole(backend),
        "tokenizer_config.json": json.dumps(settings),
        "special_tokens_map.json": json.dumps(tokens_of(roles)),
    }


# === Unigram ===


@functools.cache
def learnt_pieces():
    """([(piece, score)] without special tokens, the rules of normalization), learned by SentencePiece."""
    options = dict(vocab_size=480, hard_vocab_limit=False, minloglevel=2)
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LEARNT_FROM), model_prefix=f"{folder}/learned", **options
        )
        model = read_model(f"{folder}/learned.model")
    return [(text, score) for text, score, kind in model.pieces if kind == NORMAL], model.charsmap


def normalizer(*before, runs_of_spaces=True):
    after = [normalizers.Replace(hf.Regex(" {2,}"), " ")] if runs_of_spaces else []
    return normalizers.Sequence([*before, normalizers.Precompiled(learnt_pieces()[1]), *after])


def xlm_roberta(settings=None, slow_file=True, older=False):
    """XLM-R's files. `older`: tokenizer.json as it was written before Metaspace had a `prepend_scheme`."""
    pieces, charsmap = learnt_pieces()
    front = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    backend = hf.Tokenizer(models.Unigram([*front, *pieces, ("<mask>", 0.0)], unk_id=3))
    backend.normalizer = normalizers.Precompiled(charsmap) if older else normalizer()
    backend.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    ])  # fmt: skip
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    mark(backend, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], mask="<mask>")
    template(backend, "<s> $A </s>", "<s> $A </s> </s> $B </s>")
    text = whole(backend)
    if older:
        content = json.loads(text)
        for part in (content["pre_tokenizer"]["pretokenizers"][1], content["decoder"]):
            del part["prepend_scheme"], part["split"]
            part.update(add_prefix_space=True)
        text = json.dumps(content, ensure_ascii=False)
    usual = {"model_max_length": 512, **tokens_of(ANGLES, mask_takes_space=True)}
    files = {
        "tokenizer.json": text,
        "tokenizer_config.json": json.dumps(usual if settings is None else {**usual, **settings}),
        "special_tokens_map.json": json.dumps(tokens_of(ANGLES, mask_takes_space=True)),
    }
    if slow_file:
        of_model = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
        model = SentencePieceModel([*of_model, *((text, score, NORMAL) for text, score in pieces)], charsmap=charsmap)
        files["sentencepiece.bpe.model"] = model_bytes(model)
    return files


def deberta(whole_file=False, settings=None, added=True):
    """DeBERTa-v3's files: at first, `spm.model` and a mask that is known from the class alone."""
    front = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    pieces = [(token, 0.0, UNKNOWN if token == "[UNK]" else CONTROL) for token in front]
    learned, charsmap = learnt_pieces()
    pieces += [(text, score, NORMAL) for text, score in learned]
    files = {"spm.model": model_bytes(SentencePieceModel(pieces, charsmap=charsmap))}
    if settings is not None:
        files["tokenizer_config.json"] = json.dumps(settings)
    if whole_file:
        backend = hf.Tokenizer(models.Unigram([piece[:2] for piece in pieces], unk_id=3))
        backend.normalizer = normalizer(normalizers.Strip())
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        backend.decoder = decoders.Metaspace(prepend_scheme="always")
        mark(backend, [*front[:3]])
        backend.add_special_tokens([hf.AddedToken("[UNK]", normalized=True, special=True)])
        mark(backend, ["[MASK]"])
        template(backend, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
        files["tokenizer.json"] = whole(backend)
        roles = {"bos": "[CLS]", "eos": "[SEP]", **BRACKETS}
        files["special_tokens_map.json"] = json.dumps(tokens_of(roles))
    if added and whole_file:
        files["added_tokens.json"] = json.dumps({"[MASK]": len(pieces)})
    return files


def llama():
    """A unigram model whose tokenizer.json is in the form of Llama 2, with bytes for characters that it lacks."""
    front = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"]
    from_bytes = [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    vocabulary = [*((token, 0.0) for token in front), *from_bytes, *learnt_pieces()[0]]
    backend = hf.Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    mark(backend, front)
    template(backend, "<s> $A </s>", "<s> $A </s> $B </s>")
    roles = {
        "bos": "<s>",
        "eos": "</s>",
        "unk": "<unk>",
        "mask": "<mask>",
        "pad": "<pad>",
        "cls": "<cls>",
        "sep": "<sep>",
    }
    settings = {
        **dict(add_bos_token=True, add_eos_token=True, added_tokens_decoder=listed(backend)),
        **dict(clean_up_tokenization_spaces=False, do_lower_case=False, legacy=False, model_max_length=NO_LIMIT),
        **dict(sp_model_kwargs={}, tokenizer_class="PreTrainedTokenizerFast", use_default_system_prompt=False),
        **tokens_of(roles),
    }
    return {"tokenizer.json": whole(backend), "tokenizer_config.json": json.dumps(settings)}


@functools.cache
def vocabulary_size(make):
    """The number of tokens of a tokenizer, special ones included."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), make())
        return Tokenizer.load(folder).vocabulary_size


def write(folder, files):
    """Writes files, given {name: text, bytes, or content of a JSON file}."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8")
