"""Tokens as printed in the papers: a tokenizer whose tokens are the words of a text, and names of tokens."""

import json
from collections.abc import Iterable

import tokenizers as hf
from tokenizers import decoders, models, pre_tokenizers

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers.families import FAMILIES, Family, mark_special

from ..recipes.recipe import Recipe

# For families without a tokenizer from a paper: words, padding, and an end token.
_PLAIN = Family({"pad": "<pad>", "eos": "</s>", "unk": "<unk>"})
# Frequent words of English novels.
COMMON_WORDS = tuple(
    """
    boy boys girl girls man men woman women child children lady ladies gentleman gentlemen friend friends servant
    servants soldier soldiers doctor doctors stranger strangers visitor visitors lawyer lawyers captain captains
    officer officers prisoner prisoners sailor sailors farmer farmers guest guests neighbour neighbours poet poets
    teacher teachers clerk clerks priest priests nurse nurses king kings prince princes cousin cousins brother
    brothers sister sisters artist artists master masters house houses tree trees window windows door doors church
    churches bridge bridges gate gates wall walls garden gardens tower towers hill hills cottage cottages carriage
    carriages boat boats ship ships horse horses table tables lamp lamps book books letter letters picture pictures
    ring rings sword swords box boxes bag bags key keys hat hats coat coats stick sticks stone stones chair chairs
    flower flowers cup cups bottle bottles basket baskets candle candles paper papers river rivers castle castles
    bird birds village villages room rooms foot feet tooth teeth mouse mice wife wives knife knives thief thieves
    wolf wolves leaf leaves loaf loaves shelf shelves life lives policeman policemen workman workmen goose geese
    calf calves son sons father fathers queen queens princess princesses daughter daughters husband mother uncle
    aunt nephew niece dog dogs cat cats this these that those is are was were does do has have knows know loves love
    likes like sees see hates hate remembers remember admires admire he him she her they them I me we us take took
    taken taking write wrote written writing break broke broken breaking steal stole stolen stealing eat ate eaten
    eating throw threw thrown throwing choose chose chosen choosing wear wore worn wearing tear tore torn tearing
    drive drove driven driving draw drew drawn drawing forgive forgave forgiven forgiving find found finding bring
    brought bringing buy bought buying discover discovered discovering mention mentioned mentioning describe
    described describing destroy destroyed destroying carry carried carrying keep kept keeping seize seized seizing
    obtain obtained obtaining examine examined examining produce produced producing arrived came slept smiled
    laughed died fell disappeared vanished wept knelt trembled appeared blushed paused hesitated listened fainted
    lingered where going hiding sleeping living what doing saying reading why crying laughing waiting smiling
    weeping when coming leaving live go stand stay want mean think say laugh weep wait smile return come leave gone
    been done seen said lost heard returned saw liked loved remembered noticed admired followed helped watched hated
    thanked knew met spoke to looked at waited for walked with blamed hurt saved amused deceived enjoyed defended
    excused consoled despised pitied comforted dressed seated flattered accused reproached sold forgot understood
    guessed explained had wanted received old young poor little good tall strange kind clever brave new small large
    beautiful dark black white pretty fine red happy tired here afraid asleep ready angry ill alone silent proud
    very busy home in near behind beside yesterday again last once more the morning evening end day then night one
    after days time year winter often always sometimes two three four five six several many any money hope anything
    did anybody ever sea back will could must should would before without story song glass bread apple dinner
    breakfast supper fish ball dress gown cart enemy
""".split()
)
# {model type: family with the same special tokens, or with tokens of the same roles}
_SAME_TOKENS = {"ib-bert": "bert", "nomic_bert": "bert", "eurobert": "roberta", "bart": "roberta"}
_SENTINELS = {f"<extra_id_{number}>": f"<{letter}>" for number, letter in enumerate("XYZ")}


def word_tokenizer(
    texts: Iterable[str], model_type: str, pieces: int = 0, further: Iterable[str] | None = None
) -> Tokenizer:
    """Creates a tokenizer with whole words as tokens, and the special tokens and row layout of a family.

    Args:
        texts: texts whose words must be in the vocabulary.
        model_type: the family, such as "bert" or "t5". For other names, there are padding and end tokens, but no row
            layout.
        pieces: maximum number of letters in a piece of a word. All pieces but the first begin with "##". With 0, words
            are not split.
        further: words that noise can draw as random tokens, in addition to the words of the texts. Default: a few
            hundred common words.
    """
    family = FAMILIES.get(_SAME_TOKENS.get(model_type, model_type), _PLAIN)
    further = COMMON_WORDS if further is None else further
    roles = {role: token for role, token in family.roles.items() if token not in family.behind}
    special = dict.fromkeys([*roles.values(), *(token for token in family.special if token not in family.behind)])
    split = pre_tokenizers.BertPreTokenizer()
    words = dict.fromkeys(word for text in texts for word, _ in split.pre_tokenize_str(text))
    # A further word that is longer than a piece could be a prefix of a word of the texts, which would change its
    # pieces.
    further = [word for word in further if not pieces or len(word) <= pieces]
    known = dict.fromkeys([piece for word in words for piece in cut(word, pieces)] + further)
    tokens = [*special, *(token for token in known if token not in special)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    backend = hf.Tokenizer(models.WordPiece(vocabulary, unk_token=roles["unk"], max_input_chars_per_word=10_000))
    backend.pre_tokenizer, backend.decoder = split, decoders.WordPiece()
    mark_special(backend, list(special))
    mark_special(backend, family.behind)
    layout = family.template(family.roles, backend.get_vocab(with_added_tokens=True))
    if layout is not None:
        backend.post_processor = layout
    return Tokenizer(backend, family.roles, padding_side=family.padding_side)


def cut(word: str, pieces: int) -> list[str]:
    """Splits a word into pieces of at most `pieces` letters.

    "inviting", 4 -> "invi", "##ting"; "inviting", 0 -> "inviting"
    """
    if not pieces or len(word) <= pieces:
        return [word]
    return [("##" if start else "") + word[start : start + pieces] for start in range(0, len(word), pieces)]


def model_type_of(recipe: Recipe) -> str:
    """Returns the model type of a recipe's backbone, such as "bert"."""
    return recipe.config().model_type


class TokenNames:
    """Names of tokens in a picture.

    Byte-level tokens are decoded, with "▁" for a space. The first three sentinels are named <X>, <Y> and <Z>, as in
    T5's paper. Other tokens are shown as in the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.special = set(tokenizer.special_ids.tolist())
        content = tokenizer.content
        self._is_bytes = "ByteLevel" in json.dumps([content["pre_tokenizer"], content["decoder"]])

    def __call__(self, token_id: int) -> str:
        token = self.tokenizer.token(token_id)
        if token_id in self.special or not self._is_bytes:
            return _SENTINELS.get(token, token)
        text = self.tokenizer.decode([token_id], skip_special_tokens=False)
        return text.replace(" ", "▁").replace("\n", "↵") or token

    def is_special(self, token_id: int) -> bool:
        return token_id in self.special

    def is_sentinel(self, token_id: int) -> bool:
        return self.tokenizer.token(token_id).startswith("<extra_id_")
