"""Files of published tokenizers: the same ids as the reference, on text of every kind."""

import json

import pytest

from kerasbert.data import Tokenizer
from kerasbert.data.text import moses
from kerasbert.data.tokenizers.families import FAMILIES
from kerasbert.data.tokenizers.sentencepiece import (
    BPE,
    BYTE,
    NORMAL,
    UNIGRAM,
    SentencePieceModel,
    build_backend,
    model_bytes,
    read_model,
)
from tests.data.mixed_text import own_lines, random_lines
from tests.data.tokenizers.tokenizer_references import (
    BOS_EOS,
    PUBLISHED,
    UNK,
    assert_same_ids,
    assert_written_folder_is_the_same,
    check_moses,
    their_class,
    write_family,
)

pytestmark = pytest.mark.one_backend


@pytest.fixture(scope="module")
def pieces(unigram):
    """Pieces without special ones, learned from made-up text, and all of ASCII."""
    learned = [(text, score, NORMAL) for text, score in unigram.content["model"]["vocab"] if score < 0]
    there = {text for text, _, _ in learned}
    letters = [(chr(code), -12.0 - code / 1000, NORMAL) for code in range(33, 127) if chr(code) not in there]
    return learned + letters + [("é", -14.0, NORMAL), ("人", -14.5, NORMAL), ("...", -9.0, NORMAL)]


# === SentencePiece ===


def test_model_file_round_trip(tmp_path, pieces):
    model = SentencePieceModel(UNK + BOS_EOS + pieces, UNIGRAM, b"\x00map", True, False, False)
    (tmp_path / "x.model").write_bytes(model_bytes(model))
    again = read_model(tmp_path / "x.model")
    assert [(text, kind) for text, _, kind in again.pieces] == [(text, kind) for text, _, kind in model.pieces]
    assert max(abs(one[1] - two[1]) for one, two in zip(again.pieces, model.pieces, strict=True)) < 1e-6
    again.pieces = model.pieces
    assert again == model


def test_damaged_model_files(tmp_path, pieces):
    path = tmp_path / "spiece.model"
    content = model_bytes(SentencePieceModel(UNK + pieces))
    for damaged in (content[:-3], content[: len(content) // 2], b"", b"\xff" * 20, model_bytes.__doc__.encode()):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="spiece.model is not a valid SentencePiece model"):
            Tokenizer.load(tmp_path)
    path.write_bytes(model_bytes(SentencePieceModel(UNK + pieces, kind=3)))
    with pytest.raises(ValueError, match="must be unigram or BPE"):
        Tokenizer.load(tmp_path)


def test_unigram_takes_the_best_path():
    """log-probabilities a -2, b -2, ab -3, c -1: "abc" -> ab|c (-4), not a|b|c (-5)."""
    scores = {"▁": -1.0, "a": -2.0, "b": -2.0, "ab": -3.0, "c": -1.0}
    model = SentencePieceModel(UNK + [(text, score, NORMAL) for text, score in scores.items()])
    assert build_backend(model).encode("abc").tokens == ["▁", "ab", "c"]
    assert build_backend(model).encode("  abc   zz ").tokens == ["▁", "ab", "c", "▁", "zz"]


def test_bpe_joins_what_makes_the_best_piece():
    """The pair that makes the best-scored piece, however that piece was learned, the leftmost first."""
    texts = ["▁", "a", "b", "c", "bc", "abc", "ab", "▁abc"]
    model = SentencePieceModel(UNK + [(text, -float(i), NORMAL) for i, text in enumerate(texts)], BPE)
    assert build_backend(model).encode("abc").tokens == ["▁abc"]
    assert build_backend(model).encode("abab").tokens == ["▁", "ab", "ab"]


@pytest.mark.parametrize("kind", [UNIGRAM, BPE])
def test_byte_fallback_spells_unknown_characters_and_decodes(kind):
    spelled = [(f"<0x{byte:02X}>", -20.0, BYTE) for byte in range(256)]
    model = SentencePieceModel(UNK + [("▁", -1.0, NORMAL), ("a", -2.0, NORMAL)] + spelled, kind, byte_fallback=True)
    tokenizer = Tokenizer(build_backend(model), {"unk": "<unk>"})
    ids = tokenizer.encode(["a é"])[0]
    assert [tokenizer.token(i) for i in ids] == ["▁", "a", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == "a é"


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_bpe_models_of_the_library(byte_fallback, documents, tmp_path):
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(documents).split(". ")),
        model_prefix=str(tmp_path / "x"),
        model_type="bpe",
        vocab_size=500 if byte_fallback else 250,
        byte_fallback=byte_fallback,
        minloglevel=2,
        num_threads=1,
    )
    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "x.model"))
    backend = build_backend(read_model(tmp_path / "x.model"))
    lines = [*documents, *own_lines()[:19], "aaaaaaaaaaaaa eeeeeee ................"]
    lines = [line for line in lines if "\u0301" not in line]
    assert [encoding.ids for encoding in backend.encode_batch(lines)] == library.encode(lines)


@pytest.mark.parametrize("family", PUBLISHED)
def test_families_on_sentencepiece(family, pieces, tmp_path):
    ours = Tokenizer.load(write_family(tmp_path / "published", family, pieces))
    assert ours.padding_side == ("left" if family == "xlnet" else "right")
    lines = own_lines()
    if family != "deberta-v2":  # transformers 5.24 leaves out the normalizer of its models
        theirs = their_class(PUBLISHED[family][1]).from_pretrained(tmp_path / "published")
        assert_same_ids(ours, theirs, lines)
        assert ours.vocabulary_size == len(theirs)
    again = assert_written_folder_is_the_same(ours, lines, tmp_path / "written")
    (tmp_path / "written" / "tokenizer.json").unlink()
    from_model = Tokenizer.load(tmp_path / "written")
    assert from_model.tokens == again.tokens and from_model.info["pair"] == again.info["pair"]
    assert [row.tolist() for row in from_model.encode(lines)] == [row.tolist() for row in again.encode(lines)]


def test_ids_and_rows_of_families(pieces, tmp_path):
    def tokens(family, pair=("人", "&")):
        tokenizer = Tokenizer.load(write_family(tmp_path / family, family, pieces))
        return tokenizer, " ".join(tokenizer.token(i) for i in tokenizer.encode([pair])[0])

    xlm_roberta, row = tokens("xlm-roberta")
    assert row == "<s> ▁ 人 </s> </s> ▁ & </s>"
    assert xlm_roberta.tokens[:4] == ["<s>", "<pad>", "</s>", "<unk>"] and xlm_roberta.tokens[-1] == "<mask>"
    assert xlm_roberta.id(pieces[0][0]) == 4
    camembert, row = tokens("camembert")
    assert row == "<s> ▁ 人 </s> </s> ▁ & </s>"
    assert (camembert.cls_id, camembert.pad_id, camembert.sep_id, camembert.unk_id) == (5, 1, 6, 3)
    t5, row = tokens("t5")
    assert row == "▁ 人 </s> ▁ & </s>"
    assert t5.token(t5.vocabulary_size - 1) == "<extra_id_0>" and t5.id("<extra_id_99>") == 3 + len(pieces)
    assert t5.encode(["a <extra_id_0> b"])[0].tolist().count(t5.vocabulary_size - 1) == 1
    xlnet, row = tokens("xlnet")
    assert row == "▁ 人 <sep> ▁ & <sep> <cls>"
    assert xlnet.template(pair=True)[-1] == (xlnet.cls_id, 2) and xlnet.padding_side == "left"
    albert, row = tokens("albert")
    assert row == "[CLS] ▁ 人 [SEP] ▁ & [SEP]"
    assert albert.template(pair=True)[-1] == (3, 1) and albert.mask_id == 4
    deberta, row = tokens("deberta-v2")
    assert row == "[CLS] ▁ 人 [SEP] ▁ & [SEP]"
    assert deberta.mask_id == 4 + len(pieces) and deberta.unk_id == 3


@pytest.mark.parametrize("kind", ["published", "trained"])
def test_names_of_special_tokens_can_be_text(kind, pieces, unigram, tmp_path):
    published = write_family(tmp_path, "t5", pieces)
    tokenizer = Tokenizer.load(published) if kind == "published" else unigram
    token = tokenizer.token(tokenizer.special_ids[-1])
    read, text = (tokenizer.encode([f"a {token}x"], add_special_tokens=False, plain_text=p)[0] for p in (False, True))
    assert tokenizer.special_ids[-1] in read
    assert not set(text) & set(tokenizer.special_ids.tolist()) - {tokenizer.unk_id}


def test_number_and_comma_are_two_pieces_in_albert(pieces, tmp_path):
    pieces = [*pieces, ("9,", -3.0, NORMAL)]
    for family, wanted in (("albert", ["9", ","]), ("t5", ["9,"])):
        tokenizer = Tokenizer.load(write_family(tmp_path / family, family, pieces))
        ids = tokenizer.encode(["9,"], add_special_tokens=False)[0]
        assert [tokenizer.token(i) for i in ids][1:] == wanted


def test_settings_of_a_folder_are_followed(pieces, tmp_path):
    cased = Tokenizer.load(write_family(tmp_path / "cased", "albert", pieces, do_lower_case=False, keep_accents=True))
    assert cased.backend.normalizer.normalize_str("Éa") == "Éa"
    uncased = Tokenizer.load(write_family(tmp_path / "uncased", "albert", pieces))
    assert uncased.backend.normalizer.normalize_str("Éa ``x''") == 'ea "x"'
    few = Tokenizer.load(write_family(tmp_path / "few", "t5", pieces, extra_ids=3))
    assert few.tokens[-3:] == ["<extra_id_2>", "<extra_id_1>", "<extra_id_0>"]
    folder = write_family(tmp_path / "more", "xlm-roberta", pieces)
    last = Tokenizer.load(folder).vocabulary_size
    (folder / "added_tokens.json").write_text(json.dumps({"<entity>": last}))
    assert Tokenizer.load(folder).id("<entity>") == last
    (folder / "added_tokens.json").write_text(json.dumps({"<entity>": last + 5}))
    with pytest.raises(ValueError, match="for '<entity>' in"):
        Tokenizer.load(folder)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match="must be JSON"):
        Tokenizer.load(folder)


# === vocab.txt, and vocab.json with merges.txt ===


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("bert", "BertTokenizer"),
        ("distilbert", "DistilBertTokenizer"),
        ("electra", "ElectraTokenizer"),
        ("mobilebert", "MobileBertTokenizer"),
    ],
)
@pytest.mark.parametrize("cased", [False, True])
def test_families_on_wordpiece(family, name, cased, wordpiece, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*wordpiece.tokens, *"é人ß½"]) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not cased}))
    ours = Tokenizer.load(tmp_path)
    assert_same_ids(ours, their_class(name).from_pretrained(tmp_path), own_lines())
    assert_written_folder_is_the_same(ours, own_lines(), tmp_path / "written")
    assert ours.template(pair=True)[-1][1] == (0 if family == "distilbert" else 1)


@pytest.mark.parametrize("family", ["roberta", "gpt2", "deberta"])
def test_families_on_byte_bpe(family, byte_bpe, tmp_path):
    byte_bpe.save(tmp_path / "trained")
    ids = json.loads((tmp_path / "trained" / "vocab.json").read_text(encoding="utf-8"))
    names = {"roberta": {}, "gpt2": {"<mask>": "<|endoftext|>"}}.get(
        family, {"<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]", "<mask>": "[MASK]"}
    )
    folder = tmp_path / "published"
    folder.mkdir()
    ids = {names.get(token, token): i for token, i in ids.items()}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "merges.txt").write_bytes((tmp_path / "trained" / "merges.txt").read_bytes())
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    ours = Tokenizer.load(folder)
    name = {"roberta": "RobertaTokenizer", "gpt2": "GPT2Tokenizer", "deberta": "DebertaTokenizer"}[family]
    theirs = their_class(name).from_pretrained(folder)
    lines = [*own_lines(), "a <mask> b", "a [MASK] b"]
    # transformers 5.24 gives DeBERTa's pairs a second [SEP], which the model never saw.
    assert_same_ids(ours, theirs, lines, pairs=0 if family == "deberta" else 60)
    assert_written_folder_is_the_same(ours, lines, tmp_path / "written")


@pytest.mark.parametrize("said", ["nothing", "tokenizer_config.json", "added_tokens_decoder", "tokenizer.json"])
def test_the_blank_before_the_mask_is_taken_where_the_folder_says_so(said, byte_bpe, tmp_path):
    """transformers 5 takes it by the flag that is stored, and has none for `vocab.json` and `merges.txt` alone."""
    byte_bpe.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    (tmp_path / "special_tokens_map.json").unlink()
    if said != "tokenizer.json":
        (tmp_path / "tokenizer.json").unlink()
    flags = dict(content="<mask>", lstrip=True, rstrip=False, normalized=False, single_word=False)
    settings = {
        "tokenizer_config.json": {"mask_token": {"__type": "AddedToken", **flags}},
        "added_tokens_decoder": {"added_tokens_decoder": {str(byte_bpe.mask_id): {**flags, "special": True}}},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings.get(said, {})))
    ours = Tokenizer.load(tmp_path)
    assert_same_ids(ours, their_class("AutoTokenizer").from_pretrained(tmp_path), ["see <mask> there"], pairs=0)
    found, without = (ours.encode([text])[0] for text in ("see <mask>", "see<mask>"))
    assert (len(found) == len(without)) == (said != "nothing")


def test_merges_of_another_vocabulary_are_refused(byte_bpe, tmp_path):
    byte_bpe.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with open(tmp_path / "merges.txt", "a", encoding="utf-8") as file:
        file.write("zz yy\n")
    with pytest.raises(ValueError, match="must match .*vocab.json, which lacks"):
        Tokenizer.load(tmp_path)


# === Moses and XLM ===


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('He said: "it\'s 5,300 U.S. dollars."', 'He said : " it \'s 5,300 U.S. dollars . "'),
        ("Mr. Smith, No. 5, met Dr. Who.", "Mr. Smith , No. 5 , met Dr. Who ."),
        ("Wait... what?! (really)", "Wait ... what ? ! ( really )"),
        ("“Don’t,” she said—‘no’…", "\" Don 't , \" she said - ' no ' ..."),
        ("dogs' 1990's o'clock 'tis", "dogs ' 1990 's o 'clock ' tis"),
        ("人人生而自由，平等。", "人 人 生 而 自 由 , 平 等 ."),
        ("a\tb\nc\x00d  e", "abcd e"),
        ("", ""),
    ],
)
def test_worked_examples_of_moses(text, words):
    assert " ".join(moses.tokenize(moses.normalize_punctuation(text))) == words


def test_xlm_text_has_no_case_and_no_accents():
    assert moses.prepare('Café "Zoë\'s" (1,000)') == 'cafe " zoe \'s " ( 1,000 )'
    assert moses.prepare("Café", lowercase=False) == "Café"


def test_moses_equals_sacremoses():
    check_moses(own_lines() + random_lines(300, seed=5))


@pytest.fixture(scope="module")
def xlm(documents):
    return Tokenizer.train("bpe", documents, 250, lowercase=True)


@pytest.mark.parametrize("complete", [True, False])
def test_xlm_files_are_read_as_transformers_reads_them(complete, xlm, tmp_path):
    """Merges may pass through symbols that are no pieces, and their lines may end in a count."""
    xlm.save(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    if not complete:
        merges = (tmp_path / "merges.txt").read_text(encoding="utf-8").splitlines()
        gone = {merge.replace(" ", "") for merge in merges[:40:5]}
        tokens = [token for token in xlm.tokens if token not in gone]
        (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
        (tmp_path / "merges.txt").write_text("".join(f"{merge} {7}\n" for merge in merges), encoding="utf-8")
    ours = Tokenizer.load(tmp_path)
    assert ours.vocabulary_size == xlm.vocabulary_size - (0 if complete else len(gone))
    assert len(ours.tokens) == ours.vocabulary_size and ours.mask_id == 5
    assert_same_ids(ours, their_class("XLMTokenizer").from_pretrained(tmp_path), own_lines())
    assert_written_folder_is_the_same(ours, own_lines(), tmp_path / "written")


def test_names_of_special_tokens_survive_moses_unless_they_are_text(xlm):
    ids = xlm.encode(["a <special1> b"])[0]
    assert ids.tolist().count(xlm.mask_id) == 1 and (ids[0], ids[-1]) == (0, 1)
    assert xlm.mask_id not in xlm.encode(["a <special1> b"], plain_text=True)[0]


def test_gpt_files(xlm, tmp_path):
    tokens = ["<unk>", *(token for token in xlm.tokens if not token.startswith("<"))]
    xlm.save(tmp_path / "xlm")
    folder = tmp_path / "gpt"
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    merges = (tmp_path / "xlm" / "merges.txt").read_text(encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    ours = Tokenizer.load(folder)
    assert ours.family == "openai-gpt" and ours.preparation is None
    assert_same_ids(ours, their_class("OpenAIGPTTokenizer").from_pretrained(folder), own_lines())
    assert_written_folder_is_the_same(ours, own_lines(), tmp_path / "written")


# === Training for a family ===

FRONT = {
    "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "roberta": ["<s>", "<pad>", "</s>", "<unk>"],
    "deberta": ["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
    "gpt2": ["<|endoftext|>"],
    "xlm": ["<s>", "</s>", "<pad>", "<unk>", "<special0>", "<special1>"],
    "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
    "xlnet": ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"],
    "t5": ["<pad>", "</s>", "<unk>"],
    "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>"],
    "deberta-v2": ["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
}


@pytest.mark.parametrize("family", FRONT)
def test_training_for_a_family_gives_its_ids_and_rows(family, documents, tmp_path):
    kind = FAMILIES[family].kind
    size = {"wordpiece": 200, "byte_bpe": 400, "bpe": 250, "unigram": 230}[kind]
    tokenizer = Tokenizer.train(kind, documents, size, family=family, lowercase=kind == "bpe")
    assert tokenizer.vocabulary_size == size
    assert tokenizer.tokens[: len(FRONT[family])] == FRONT[family]
    assert tokenizer.tokens[size - len(FAMILIES[family].behind) :] == list(FAMILIES[family].behind)
    assert_written_folder_is_the_same(tokenizer, own_lines(), tmp_path)


def test_a_family_has_one_kind(documents):
    with pytest.raises(ValueError, match="For unigram, `family` must be one of .*t5.*Received: 'bert'"):
        Tokenizer.train("unigram", documents, 100, family="bert")
