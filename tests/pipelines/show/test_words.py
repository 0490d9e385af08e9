"""The tokenizer of whole words that pictures use, and the names of tokens."""

import pytest

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers.families import FAMILIES
from pipelines.recipes.recipe import all_recipes, find_recipe
from pipelines.show.words import COMMON_WORDS, TokenNames, cut, model_type_of, word_tokenizer

pytestmark = pytest.mark.one_backend

SENTENCE = "Thank you for inviting me to your party last week."


def tokens_of(tokenizer, text=SENTENCE):
    return [tokenizer.token(number) for number in tokenizer.encode([text])[0]]


def test_words_are_tokens_in_the_layout_of_the_family():
    words = "Thank you for inviting me to your party last week .".split()
    layouts = {"bert": ("[CLS]", "[SEP]"), "roberta": ("<s>", "</s>"), "t5": (None, "</s>"), "gpt2": (None, None)}
    for family, (first, last) in layouts.items():
        expected = [token for token in (first, *words, last) if token]
        assert tokens_of(word_tokenizer([SENTENCE], family)) == expected


def test_every_family_and_every_recipe_has_a_tokenizer():
    families = {model_type_of(make()) for make in all_recipes().values()} | set(FAMILIES)
    for family in sorted(families):
        tokenizer = word_tokenizer([SENTENCE], family, further=())
        assert SENTENCE.split()[0] in tokens_of(tokenizer), family
        assert set(FAMILIES[family].roles) <= set(tokenizer.roles) if family in FAMILIES else "pad" in tokenizer.roles
    assert word_tokenizer([SENTENCE], model_type_of(find_recipe("mobilebert.teacher"))).roles["mask"] == "[MASK]"


def test_pieces_have_at_most_so_many_letters():
    assert cut("inviting", 4) == ["invi", "##ting"] and cut("inviting", 0) == ["inviting"] and cut("to", 4) == ["to"]
    tokenizer = word_tokenizer([SENTENCE], "bert", pieces=4)
    found = tokens_of(tokenizer)
    assert found[1:8] == ["Than", "##k", "you", "for", "invi", "##ting", "me"]
    assert max(len(token.removeprefix("##")) for token in found[1:-1]) == 4
    assert tokenizer.word_starts[tokenizer.id("invi")] and not tokenizer.word_starts[tokenizer.id("##ting")]


def test_noise_can_draw_further_words():
    assert len(COMMON_WORDS) > 400 and "apple" in COMMON_WORDS
    small, large = (word_tokenizer([SENTENCE], "bert", further=further) for further in (("apple",), None))
    assert small.vocabulary_size == 5 + 11 + 1 and large.vocabulary_size > 400


def test_t5_has_its_sentinels_in_the_order_of_their_ids():
    tokenizer = word_tokenizer([SENTENCE], "t5", further=())
    assert tokenizer.id("<extra_id_0>") == tokenizer.vocabulary_size - 1
    names = TokenNames(tokenizer)
    first = tokenizer.id("<extra_id_0>")
    assert [names(first - number) for number in range(4)] == ["<X>", "<Y>", "<Z>", "<extra_id_3>"]
    assert names.is_sentinel(first) and names.is_special(first) and not names.is_special(tokenizer.id("party"))


def test_byte_level_tokens_are_readable():
    tokenizer = Tokenizer.train("byte_bpe", ["café au lait, café au lait"] * 4, 270)
    names = TokenNames(tokenizer)
    ids = tokenizer.encode(["café au lait"], add_special_tokens=False)[0]
    assert "".join(map(names, ids)).replace("▁", " ").strip() == "café au lait"
    assert names(tokenizer.mask_id) == "<mask>"
