"""Folders without tokenizer.json, of tiny vocabularies, and the texts on which they are compared with transformers."""

import json

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers.families import FAMILIES
from kerasbert.data.tokenizers.sentencepiece import BPE, NORMAL, UNIGRAM, USER_DEFINED, SentencePieceModel, model_bytes
from tests.data.mixed_text import MARKS, SCRIPTS, random_lines
from tests.data.tokenizers.tokenizer_references import PUBLISHED

TEXTS = [
    *("Hello world, the cat sat on the mat!", "Café CANAPÉ naïve Übung", " lead and  double  space ", "a <new> b", ""),
    *("人生 自由 abc人b", "x<new>y NEW <New>", "a [MASK] b<mask>c", "a <extra> b<extra>c", "Word ent1 ent2ent1"),
    *("3,000.5 it's don't (a-b)_c", "eta oin shr", "<sym>abc <sym> cde"),
    *SCRIPTS[:9],
    *MARKS[:2],
    *MARKS[4:9],
    *random_lines(11, 3),
]
# The mark of SentencePiece, at the ends of texts and of special tokens, and white space that texts may begin with.
MARKS = [
    *("▁", "▁▁", " ▁", "▁ ", "a▁", "▁a", "a▁b", "a ▁b", "a▁ b", "a ▁ b", "a▁▁b", "  ▁a", "a  ▁  b", "the_▁", "▁."),
    *("▁[MASK]", "a▁<mask> b", "[MASK]▁the", "<mask> ▁the", "the [SEP]▁ a", "▁</s>", "▁<extra_id_0>▁b", "\n▁", "▁\tb"),
    *(" the cat ", "the\ncat", "the\t\ncat", "\n", "", " ", "e\u0301 cafe\u0301", "▁é"),
]
# The class of transformers, and the family whose files it reads.
CLASSES = {
    **dict.fromkeys(("BertTokenizer", "BertTokenizerFast", "ConvBertTokenizer", "SqueezeBertTokenizer"), "bert"),
    **dict.fromkeys(("LayoutLMTokenizer", "LxmertTokenizer", "DPRQuestionEncoderTokenizer"), "bert"),
    **{"ElectraTokenizer": "electra", "MobileBertTokenizer": "mobilebert", "DistilBertTokenizer": "distilbert"},
    "MPNetTokenizer": "mpnet",
    **dict.fromkeys(("RobertaTokenizer", "RobertaTokenizerFast", "LongformerTokenizer", "BartTokenizer"), "roberta"),
    **dict.fromkeys(("LEDTokenizer", "MvpTokenizer"), "roberta"),
    **{"GPT2Tokenizer": "gpt2", "OpenAIGPTTokenizer": "openai-gpt", "DebertaTokenizer": "deberta"},
    **{"AlbertTokenizer": "albert", "XLNetTokenizer": "xlnet", "T5Tokenizer": "t5", "T5TokenizerFast": "t5"},
    **{"XLMRobertaTokenizer": "xlm-roberta", "CamembertTokenizer": "camembert", "DebertaV2Tokenizer": "deberta-v2"},
    "XLMTokenizer": "xlm",
}


class Vocabularies:
    """Learns tiny vocabularies once, and writes folders of them.

    Args:
        documents: texts to learn from.
    """

    def __init__(self, documents):
        documents = [*documents, "hello Hello world the cat sat on mat word Word new NEW line lead and double space"]
        self.wordpiece = Tokenizer.train("wordpiece", documents, 260)
        self.byte_bpe = Tokenizer.train("byte_bpe", documents, 420)
        self.bpe = Tokenizer.train("bpe", documents, 300)
        unigram = Tokenizer.train("unigram", documents, 170)
        learned = [(text, score, NORMAL) for text, score in unigram.content["model"]["vocab"] if score < 0]
        there = {text for text, _, _ in learned}
        learned += [(chr(code), -12.0 - code / 1000, NORMAL) for code in range(33, 127) if chr(code) not in there]
        self.pieces = [*learned, ("é", -14.0, NORMAL), ("人", -14.5, NORMAL)]

    def write(self, folder, family, settings=None, symbols=(), kind=UNIGRAM, **files):
        """A folder with the vocabulary of a family.

        Args:
            settings: the content of tokenizer_config.json.
            symbols: user-defined symbols of a SentencePiece model of this `kind`.
            **files: the content of other JSON files.
        """
        folder.mkdir(exist_ok=True)
        if FAMILIES[family].file == "vocab.txt":
            tokens = dict.fromkeys([*self.wordpiece.tokens, *"é人ß", "canape", "cafe", "<extra>"])
            if family == "mpnet":  # BERT's vocabulary between fairseq's tokens
                tokens = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"])
            (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        elif family in PUBLISHED:
            front = [piece if isinstance(piece, tuple) else (piece, 0.0, 3) for piece in PUBLISHED[family][0]]
            pieces = self.pieces
            if kind == BPE:
                pieces = [(text, -float(i), NORMAL) for i, (text, _, _) in enumerate(pieces)]
            pieces = front + [(text, 0.0, USER_DEFINED) for text in symbols] + pieces
            (folder / FAMILIES[family].file).write_bytes(model_bytes(SentencePieceModel(pieces, kind)))
        else:
            self._write_bpe(folder, family)
        (folder / "config.json").write_text(json.dumps({"model_type": family}))
        (folder / "tokenizer_config.json").write_text(json.dumps(settings or {}))
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        return folder

    def _write_bpe(self, folder, family):
        of_words = family in ("xlm", "openai-gpt")
        (self.bpe if of_words else self.byte_bpe).save(folder / "trained")
        ids = json.loads((folder / "trained" / "vocab.json").read_text(encoding="utf-8"))
        merges = (folder / "trained" / "merges.txt").read_text(encoding="utf-8")
        names = {"gpt2": {"<mask>": "<|endoftext|>"}}.get(family, {})
        if family == "deberta":
            names = {"<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]", "<mask>": "[MASK]"}
        ids = {names.get(token, token): index for token, index in ids.items()}
        if family == "openai-gpt":
            tokens = ["<unk>", *(token for token in ids if not token.startswith("<"))]
            ids, merges = {token: index for index, token in enumerate(tokens)}, f"#version: 0.2\n{merges}"
        (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
        (folder / "merges.txt").write_text(merges, encoding="utf-8")


def assert_equal(folder, family, leave_out=()):
    """Ids and decoded texts are those of transformers. Returns our tokenizer."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    # transformers leaves out the normalizer of DeBERTa's models, which matters for white space and control characters.
    # It does not find sentinels and unused roles in text where further special tokens are stated.
    texts = [text for text in TEXTS if not any(name in text for name in leave_out)]
    texts = [text for text in texts if family != "deberta-v2" or (text.isprintable() and text == text.strip())]
    wanted = [theirs(text)["input_ids"] for text in texts]
    assert [row.tolist() for row in ours.encode(texts)] == wanted
    assert [ours.decode(row) for row in wanted] == [theirs.decode(row, skip_special_tokens=True) for row in wanted]
    assert ours.padding_side == theirs.padding_side and (ours.max_length or int(1e30)) == theirs.model_max_length
    return ours
