"""Twenty paradigms of English grammar: templates of an acceptable and an unacceptable sentence.

They follow BLiMP (Warstadt et al. 2020, arXiv 1912.00582) and Zorro (Huebner et al. 2021, BabyBERTa), with an
additional rule: word frequencies must not help. Either both sentences of a pair have the same words in a different
order, or there is a second pair in which the form that is right in the first pair is wrong, and vice versa.
"""

from benchmarks.studies.suite.lexicon import Draw

Pairs = list[tuple[str, str]]  # (acceptable, unacceptable)
Forms = tuple[str, str]


def sentence(template: str, words: dict[str, str]) -> str:
    """Fills in the words of a template: "the {noun} slept." with noun="boy" -> "The boy slept."."""
    text = " ".join(template.format(**words).split())
    return text[0].upper() + text[1:]


def mirrored(template: str | Forms, critical: str, **words: str | Forms) -> Pairs:
    """Makes two pairs: one with the first form, and one with the second form, of all words that have two forms.

    In the unacceptable sentence of each pair, the `critical` word has the other form.

    Args:
        template: sentence with names of words in braces, or one for each pair.
        critical: name of the word that is wrong in the unacceptable sentences.
        **words: {name: the word, or its two forms}.
    """
    templates = (template, template) if isinstance(template, str) else template
    pairs = []
    for k in (0, 1):
        right = {name: word if isinstance(word, str) else word[k] for name, word in words.items()}
        wrong = right | {critical: words[critical][1 - k]}
        pairs.append((sentence(templates[k], right), sentence(templates[k], wrong)))
    return pairs


def swapped(template: str, **words: str) -> Pairs:
    """Makes a pair in which the words {a} and {b} are swapped in the unacceptable sentence."""
    return [(sentence(template, words), sentence(template, words | {"a": words["b"], "b": words["a"]}))]


def moved(right: str, wrong: str, **words: str) -> Pairs:
    """Makes a pair from two templates with the same words."""
    return [(sentence(right, words), sentence(wrong, words))]


def opposite(forms: Forms) -> Forms:
    return forms[::-1]


# === Agreement of subject and verb ===


def predicate(draw: Draw) -> dict[str, str | Forms]:
    """Draws a verb in singular and plural, and the rest of the sentence."""
    if draw.choice((True, False)):
        return dict(verb=draw.forms("forms of be"), rest=draw("states"))
    return dict(verb=draw.forms("stative verbs"), rest=f"the {draw('views')}")


def agreement_simple(draw: Draw) -> Pairs:
    """The old boys know the house. / The old boys knows the house."""
    words = dict(adjective=draw("adjectives of people"), noun=draw.forms("people"))
    return mirrored("the {adjective} {noun} {verb} {rest}.", "verb", **words, **predicate(draw))


def agreement_prepositional_phrase(draw: Draw) -> Pairs:
    """The boys near the tree are happy. / The boys near the tree is happy."""
    words = dict(noun=draw.forms("people"), other=opposite(draw.forms("places")), preposition=draw("prepositions"))
    return mirrored("the {noun} {preposition} the {other} {verb} {rest}.", "verb", **words, **predicate(draw))


def agreement_relative_clause(draw: Draw) -> Pairs:
    """The boys that the lady knew are happy. / The boys that the lady knew is happy."""
    noun, other = draw.two_forms("people")
    clause = draw.choice(("that the {other} {past}", "who {past} the {other}"))
    words = dict(noun=noun, other=opposite(other), past=draw("verbs of relations"))
    return mirrored(f"the {{noun}} {clause} {{verb}} {{rest}}.", "verb", **words, **predicate(draw))


def agreement_question(draw: Draw) -> Pairs:
    """Where do the old boys live? / Where does the old boys live?"""
    kind = draw.choice(("do", "be", "have"))
    question, verb = draw.forms(f"questions with {kind}")
    words = dict(question=question, verb=verb, auxiliary=draw.forms(f"forms of {kind}"))
    words |= dict(adjective=draw("adjectives of people"), noun=draw.forms("people"))
    return mirrored("{question} {auxiliary} the {adjective} {noun} {verb}?", "auxiliary", **words)


# === Agreement of determiner and noun ===


def determiner_noun(draw: Draw, kind: str = "views", adjective: str = "") -> Pairs:
    """The lady saw these houses. / The lady saw this houses. Or: The lady saw these house."""
    words = dict(subject=draw("people"), verb=draw("verbs of perception"), ending=draw("endings"), adjective=adjective)
    words |= dict(determiner=draw.forms("demonstratives"), noun=draw.forms(kind))
    wrong = draw.choice(("determiner", "noun"))
    return mirrored("the {subject} {verb} {determiner} {adjective} {noun} {ending}.", wrong, **words)


def determiner_noun_adjective(draw: Draw) -> Pairs:
    """The lady saw these old houses. / The lady saw this old houses."""
    return determiner_noun(draw, adjective=draw("adjectives of things"))


def determiner_noun_irregular(draw: Draw) -> Pairs:
    """The lady saw these children. / The lady saw this children."""
    return determiner_noun(draw, "irregular nouns")


# === Anaphors and pronouns ===


def reflexive_gender(draw: Draw) -> Pairs:
    """The girl blamed herself. / The girl blamed himself."""
    words = dict(verb=draw("verbs with reflexives"), ending=draw("endings"), reflexive=("himself", "herself"))
    return mirrored("the {noun} {verb} {reflexive} {ending}.", "reflexive", noun=draw.forms("couples"), **words)


def reflexive_number(draw: Draw) -> Pairs:
    """The boys blamed themselves. / The boys blamed himself."""
    kind, singular = draw.choice((("males", "himself"), ("females", "herself")))
    words = dict(verb=draw("verbs with reflexives"), ending=draw("endings"), reflexive=(singular, "themselves"))
    return mirrored("the {noun} {verb} {reflexive} {ending}.", "reflexive", noun=draw.forms(kind), **words)


def binding(draw: Draw) -> Pairs:
    """The sister of the king blamed herself. / The sister of the king blamed himself."""
    kind, clause = draw.choice((("relatives", "of the {other}"), ("couples", "who {past} the {other}")))
    words = dict(noun=draw.forms(kind), other=opposite(draw.forms("rulers")), past=draw("verbs of relations"))
    words |= dict(verb=draw("verbs with reflexives"), reflexive=("himself", "herself"))
    return mirrored(f"the {{noun}} {clause} {{verb}} {{reflexive}}.", "reflexive", **words)


def pronoun_case(draw: Draw) -> Pairs:
    """Yesterday he saw the king. / Yesterday him saw the king. The king saw him. / The king saw he."""
    words = dict(noun=draw("people"), verb=draw("verbs with people"), beginning=draw("beginnings"))
    templates = ("{beginning} {pronoun} {verb} the {noun}.", "{beginning} the {noun} {verb} {pronoun}.")
    return mirrored(templates, "pronoun", pronoun=draw.forms("pronouns"), **words)


# === Verbs and their arguments ===


def irregular_verb(draw: Draw) -> Pairs:
    """The boy took the key. / The boy taken the key. The boy had taken the key. / The boy had took the key."""
    verb = draw.forms("irregular verbs")
    words = dict(adjective=draw("adjectives of people"), noun=draw("people"), ending=draw("endings"), verb=verb[1:3])
    have, rest = "the {adjective} {noun} {have} ", "{verb} the {object} {ending}."
    templates = tuple(have.replace("{have}", auxiliary) + rest for auxiliary in ("", "had"))
    return mirrored(templates, "verb", object=draw.object_of(verb), **words)


def auxiliary_form(draw: Draw) -> Pairs:
    """Did the boy take the key? / Did the boy taken the key?"""
    verb = draw.forms("irregular verbs")
    base, _, participle, progressive = verb
    auxiliaries, forms = draw.choice(
        (
            (("has", draw("modals")), (participle, base)),
            (draw.choice((("is", "does"), ("was", "did"))), (progressive, base)),
        )
    )
    words = dict(adjective=draw("adjectives of people"), noun=draw("people"), why=draw.choice(("why", "")))
    template = "{why} {auxiliary} the {adjective} {noun} {verb} the {object}?"
    wrong = draw.choice(("auxiliary", "verb"))
    return mirrored(template, wrong, auxiliary=auxiliaries, verb=forms, object=draw.object_of(verb), **words)


def transitivity(draw: Draw) -> Pairs:
    """The boy found the key. / The boy arrived the key. The boy arrived. / The boy found."""
    words = dict(adjective=draw("adjectives of people"), noun=draw("people"), ending=draw("endings"))
    templates = ("the {adjective} {noun} {verb} the {thing} {ending}.", "the {adjective} {noun} {verb} {ending}.")
    verbs = (draw.forms("transitive verbs")[1], draw("intransitive verbs"))
    return mirrored(templates, "verb", verb=verbs, thing=draw("things"), **words)


# === Fillers and gaps ===


def wh_vs_that(draw: Draw) -> Pairs:
    """The lady knew what the boy found. / The lady knew that the boy found."""
    noun, other = draw.two("people")
    words = dict(noun=noun, other=other, clause=draw("verbs with clauses"), verb=draw.forms("transitive verbs")[1])
    start = "the {noun} {clause} {word} the {other} {verb}"
    return mirrored(
        (start + ".", start + " the {thing}."), "word", word=("what", "that"), thing=draw("things"), **words
    )


def island_coordinate(draw: Draw) -> Pairs:
    """What did the boy and the girl find? / What did the boy find and the girl?"""
    noun, other = draw.two("people")
    words = dict(noun=noun, other=other, modal=draw("modals"), verb=draw("transitive verbs"))
    return moved(
        "what {modal} the {noun} and the {other} {verb}?", "what {modal} the {noun} {verb} and the {other}?", **words
    )


def island_adjunct(draw: Draw) -> Pairs:
    """What did the boy find before buying the key? / What did the boy find the key before buying?"""
    first, second = draw.two_forms("transitive verbs")
    words = dict(modal=draw("modals"), noun=draw("people"), verb=first[0], participle=second[2], thing=draw("things"))
    words |= dict(conjunction=draw("conjunctions"))
    start = "what {modal} the {noun} {verb}"
    adjunct, thing = "{conjunction} {participle}", "the {thing}"
    return moved(f"{start} {adjunct} {thing}?", f"{start} {thing} {adjunct}?", **words)


# === Ellipsis, negation and quantifiers ===


def ellipsis_n_bar(draw: Draw) -> Pairs:
    """The boy saw two old books and the girl saw three. / The boy saw two books and the girl saw three old."""
    noun, other = draw.two("people")
    first, second = draw.two("numbers")
    words = dict(noun=noun, other=other, first=first, second=second, verb=draw("verbs of trade"))
    words |= dict(adjective=draw("adjectives of things"), things=draw.forms("things")[1])
    return moved(
        "the {noun} {verb} {first} {adjective} {things} and the {other} {verb} {second}.",
        "the {noun} {verb} {first} {things} and the {other} {verb} {second} {adjective}.",
        **words,
    )


def npi_licensing(draw: Draw) -> Pairs:
    """At that time no boy that the king knew had any money. / At that time the boy that no king knew had any money."""
    noun, other = draw.two("people")
    if draw.choice((True, False)):
        words = dict(time=draw("times"), past=draw("verbs of relations"), claim=draw("claims with any"))
        template = "{time} {a} {noun} that {b} {other} {past} {claim}."
        return swapped(template, a="no", b="the", noun=noun, other=other, **words)
    words = dict(noun=noun, other=other, verb=draw("verbs of possession"), things=draw("plurals"))
    template = draw.choice(
        (
            "the {noun} {a} {verb} any {things}, but the {other} {b} {verb} some.",
            "the {noun} {b} {verb} some {things}, but the {other} {a} {verb} any.",
        )
    )
    return swapped(template, a="never", b=draw("frequencies"), **words)


def existential_there(draw: Draw) -> Pairs:
    """There was a lamp in every room. / There was every lamp in a room."""
    number, weak, strong = draw.choice(
        ((0, ("a",), ("every", "each")), (1, ("two", "three", "many", "several", "some"), ("most", "both")))
    )
    verb = draw.choice((("is", "are"), ("was", "were")))[number]
    words = dict(verb=verb, noun=draw.forms("contents")[number], place=draw.forms("containers")[number])
    return swapped("there {verb} {a} {noun} in {b} {place}.", a=draw.choice(weak), b=draw.choice(strong), **words)


PARADIGMS = {
    paradigm.__name__: paradigm
    for paradigm in (
        *(agreement_simple, agreement_prepositional_phrase, agreement_relative_clause, agreement_question),
        *(determiner_noun, determiner_noun_adjective, determiner_noun_irregular),
        *(reflexive_gender, reflexive_number, binding, pronoun_case),
        *(irregular_verb, auxiliary_form, transitivity),
        *(wh_vs_that, island_coordinate, island_adjunct),
        *(ellipsis_n_bar, npi_licensing, existential_there),
    )
}
