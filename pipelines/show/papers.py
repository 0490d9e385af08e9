"""Examples of objectives from the papers, reproduced by this package with seeds that give the noise of the paper.

The seeds were found by trying one after the other. Where the settings of the recipe cannot give the example (such as a
span of four words in a sentence of twelve, with 15% noise), the settings below override them.
"""

import dataclasses

from ..recipes.recipe import find_recipe
from .corruption import Example, corrupted
from .rows import Rows


@dataclasses.dataclass(frozen=True)
class PaperExample:
    """An example of a paper.

    Args:
        title: heading.
        source: where the example is in the paper.
        recipe: name of a recipe.
        settings: overrides of the recipe.
        example: the sentence, with the seed.
        lines: {label of a line: tokens that the paper shows in it}.
    """

    title: str
    source: str
    recipe: str
    settings: tuple[str, ...]
    example: Example
    lines: dict[str, str]

    def picture(self) -> Rows:
        recipe = find_recipe(self.recipe).with_settings(list(self.settings))
        rows = corrupted(recipe, self.example, self.title)[0]
        used = ", ".join((self.recipe, *self.settings, f"seed {self.example.seed}"))
        return dataclasses.replace(rows, about=f"{self.source}. {rows.about}", notes=(*rows.notes, f"Recipe: {used}."))


_PARTY = "Thank you for inviting me to your party last week."
_WHOLE = "Thank you for inviting me to your party last week . </s>"
_BERT = ("data.rows=chunks",)
_TABLE_3 = "Raffel et al. 2019, table 3"
_HAIRY = "Devlin et al. 2018, appendix A.1"


def _t5(title: str, recipe: str, seed: int, inputs: str, targets: str, *settings: str) -> PaperExample:
    example = Example(_PARTY, seed=seed, words=("apple",))
    lines = {"inputs": inputs + " </s>", "targets": targets}
    return PaperExample(f"T5: {title}", _TABLE_3, recipe, settings, example, lines)


PAPERS = (
    PaperExample(
        "BERT: the mask, with a probability of 80%",
        _HAIRY,
        "bert.base",
        _BERT,
        Example("my dog is hairy", seed=0, words=("apple",)),
        {"inputs": "[CLS] my dog is [MASK] [SEP]"},
    ),
    PaperExample(
        "BERT: a random word, with a probability of 10%",
        _HAIRY,
        "bert.base",
        _BERT,
        Example("my dog is hairy", seed=309, words=("apple",)),
        {"inputs": "[CLS] my dog is apple [SEP]"},
    ),
    PaperExample(
        "BERT: the word itself, with a probability of 10%",
        _HAIRY,
        "bert.base",
        _BERT,
        Example("my dog is hairy", seed=70, words=("apple",)),
        {"inputs": "[CLS] my dog is hairy [SEP]"},
    ),
    PaperExample(
        "BERT: next-sentence prediction",
        _HAIRY.replace("A.1", "A.1, task 2"),
        "bert.base",
        (),
        Example("the man went to the store", "he bought a gallon of milk", seed=491, words=()),
        {"inputs": "[CLS] the man went to [MASK] store [SEP] he bought a gallon [MASK] milk [SEP]"},
    ),
    PaperExample(
        "SpanBERT: a span, and its words from the words beside it",
        "Joshi et al. 2019, figure 1",
        "spanbert.base",
        ("data.noise.rate=0.33",),
        Example("Super Bowl 50 was an American football game to determine the champion", seed=23, words=()),
        {
            "inputs": "[CLS] Super Bowl 50 was [MASK] [MASK] [MASK] [MASK] to determine the champion [SEP]",
            "boundary": "an American football game",
        },
    ),
    PaperExample(
        "ELECTRA: replaced token detection",
        "Clark et al. 2020, figure 2",
        "electra.base",
        ("data.noise.rate=0.3",),
        Example("the chef cooked the meal", seed=523, words=("ate",)),
        {
            "generator": "[CLS] [MASK] chef [MASK] the meal [SEP]",
            "discriminator": "[CLS] the chef ate the meal [SEP]",
        },
    ),
    PaperExample(
        "XLM: translation language model",
        "Lample and Conneau 2019, figure 1",
        "xlm.mlm_tlm",
        ("data.text.noise.rate=0.3", "data.pairs.noise.rate=0.3"),
        Example("the curtains were blue", translation="les rideaux étaient bleus", seed=1775, words=()),
        {
            "inputs": "</s> the <special1> <special1> blue </s> </s> <special1> rideaux étaient <special1> </s>",
        },
    ),
    PaperExample(
        "XLNet: New York, in the order is, a, city, New, York",
        "Yang et al. 2019, section 2.6",
        "xlnet.base",
        ("data.noise.partial=3",),
        Example("New York is a city", seed=0, words=()),
        {"1. New": "? ···· is a city", "2. York": "New ? is a city"},
    ),
    _t5("prefix language model", "t5.prefix_lm", 4, "Thank you for inviting", "me to your party last week . </s>"),
    _t5(
        "BERT-style",
        "t5.bert_style",
        1069771,
        "Thank you <M> <M> me to your party apple week .",
        _WHOLE,
        "data.noise.rate=0.27",
    ),
    _t5("MASS-style", "t5.mass_style", 508, "Thank you <M> <M> me to your party <M> week .", _WHOLE),
    _t5(
        "replace spans",
        "t5.replace_spans",
        508,
        "Thank you <X> me to your party <Y> week .",
        "<X> for inviting <Y> last <Z> </s>",
    ),
    _t5("drop tokens", "t5.drop_tokens", 508, "Thank you me to your party week .", "for inviting last </s>"),
    _t5(
        "random spans",
        "t5.base",
        287,
        "Thank you <X> to <Y> week .",
        "<X> for inviting me <Y> your party last <Z> </s>",
        "length=64",
        "data.noise.rate=0.55",
        "data.noise.roll=true",
    ),
)


def papers() -> list[Rows]:
    """Creates pictures of all `PAPERS`."""
    return [example.picture() for example in PAPERS]
