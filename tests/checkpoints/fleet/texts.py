"""Texts that tokenizers treat differently, and what tiny vocabularies are learned from."""

from tests.data.mixed_text import MARKS, SCRIPTS

LEARNT_FROM = [
    *SCRIPTS[:17],
    *MARKS[:3],
    "The cat sat on the mat, and the dogs ran home while old birds sang new songs all day.",
    "the quick brown fox jumps over the lazy dog; THE QUICK BROWN FOX 0123456789",
] * 3

# Forty texts. Short ones come first: they are those that models read.
TEXTS = [
    *("The cat sat on the mat.", "who ran home?", "Größe, café, naïve CAFÉ", "人人生而自由 abc", "fox 👍🏽 dog"),
    *("", " ", "\t", "a", "\u0301", "!?!?", "lead  and   double ", "tab\tline\nfeed\r\nend", "[MASK] sat <mask>"),
    *("[CLS] a [SEP] b", "<s>a</s> <pad>[PAD]", "<unk>[UNK]x", "<|endoftext|> <bos> <eos>", "[unused1]<unused1>"),
    *("a[MASK]b a <mask> b", "▁under ▁▁score", "##piece ##s", "it's we'll WE'LL don't", "3,000.50 1/2 50% $9"),
    *("x" * 130, "the cat " * 40),
    *(SCRIPTS[i] for i in (4, 6, 7, 8, 11, 14, 15, 16, 17, 18)),
    *(MARKS[i] for i in (1, 2, 3, 4)),
]
assert len(TEXTS) == 40
READ = TEXTS[:5]
PAIRS = [("the cat", "sat on the mat"), ("who ran home?", "dogs"), ("naïve", "人人生而自由 fox")]
