"""The words of minimal pairs, in classes. An entry of a class is a tuple of forms, such as singular and plural."""

import random
from collections.abc import Iterable, Mapping

# Forms are separated by "/", and entries by spaces. "_" stands for a space in an entry.
CLASSES = {
    # singular/plural
    "people": """
        boy/boys girl/girls man/men woman/women child/children lady/ladies gentleman/gentlemen friend/friends
        servant/servants soldier/soldiers doctor/doctors stranger/strangers visitor/visitors lawyer/lawyers
        captain/captains officer/officers prisoner/prisoners sailor/sailors farmer/farmers guest/guests
        neighbour/neighbours poet/poets teacher/teachers clerk/clerks priest/priests nurse/nurses king/kings
        prince/princes cousin/cousins brother/brothers sister/sisters artist/artists master/masters""",
    "places": """
        house/houses tree/trees window/windows door/doors church/churches bridge/bridges gate/gates wall/walls
        garden/gardens tower/towers hill/hills cottage/cottages carriage/carriages boat/boats ship/ships horse/horses
        table/tables lamp/lamps""",
    "things": """
        book/books letter/letters picture/pictures ring/rings sword/swords box/boxes bag/bags key/keys hat/hats
        coat/coats lamp/lamps stick/sticks stone/stones chair/chairs table/tables flower/flowers cup/cups
        bottle/bottles basket/baskets candle/candles paper/papers""",
    "views": """
        house/houses garden/gardens tree/trees church/churches ship/ships river/rivers castle/castles picture/pictures
        flower/flowers horse/horses bird/birds boat/boats village/villages tower/towers bridge/bridges letter/letters
        room/rooms""",
    "irregular nouns": """
        man/men woman/women child/children gentleman/gentlemen foot/feet tooth/teeth mouse/mice wife/wives knife/knives
        thief/thieves wolf/wolves leaf/leaves loaf/loaves shelf/shelves life/lives policeman/policemen
        workman/workmen goose/geese calf/calves""",
    "males": "boy/boys man/men gentleman/gentlemen king/kings prince/princes brother/brothers son/sons father/fathers",
    "females": "girl/girls woman/women lady/ladies queen/queens princess/princesses sister/sisters daughter/daughters",
    # male/female
    "couples": """
        boy/girl man/woman gentleman/lady king/queen prince/princess husband/wife father/mother brother/sister
        son/daughter uncle/aunt nephew/niece""",
    "relatives": "father/mother brother/sister son/daughter uncle/aunt nephew/niece",
    "rulers": "boy/girl man/woman gentleman/lady king/queen prince/princess",
    # singular/plural
    "contents": """
        soldier/soldiers servant/servants child/children stranger/strangers woman/women girl/girls boy/boys man/men
        prisoner/prisoners lady/ladies gentleman/gentlemen dog/dogs cat/cats bird/birds chair/chairs table/tables
        lamp/lamps picture/pictures box/boxes candle/candles bottle/bottles book/books letter/letters""",
    "containers": """
        room/rooms house/houses church/churches castle/castles cottage/cottages carriage/carriages boat/boats
        ship/ships garden/gardens""",
    "demonstratives": "this/these that/those",
    "forms of be": "is/are was/were",
    "forms of do": "does/do",
    "forms of have": "has/have",
    "stative verbs": "knows/know loves/love likes/like sees/see hates/hate remembers/remember admires/admire",
    # subject/object
    "pronouns": "he/him she/her they/them I/me we/us",
    # base/past/past participle/present participle; their objects are in OBJECTS
    "irregular verbs": """
        take/took/taken/taking write/wrote/written/writing break/broke/broken/breaking steal/stole/stolen/stealing
        eat/ate/eaten/eating throw/threw/thrown/throwing choose/chose/chosen/choosing wear/wore/worn/wearing
        tear/tore/torn/tearing drive/drove/driven/driving draw/drew/drawn/drawing forgive/forgave/forgiven/forgiving""",
    # base/past/present participle of verbs that need an object, which can be any of the things
    "transitive verbs": """
        find/found/finding bring/brought/bringing buy/bought/buying take/took/taking
        discover/discovered/discovering mention/mentioned/mentioning describe/described/describing
        destroy/destroyed/destroying carry/carried/carrying keep/kept/keeping seize/seized/seizing
        obtain/obtained/obtaining examine/examined/examining produce/produced/producing""",
    "intransitive verbs": """
        arrived came slept smiled laughed died fell disappeared vanished wept knelt trembled appeared blushed
        paused hesitated listened fainted lingered""",
    # question word/verb
    "questions with be": """
        where/going where/hiding where/sleeping where/living what/doing what/saying what/reading what/writing
        what/eating why/crying why/laughing why/waiting why/smiling why/weeping when/coming when/leaving""",
    "questions with do": """
        where/live where/go where/stand where/stay what/want what/mean what/think what/say what/see why/laugh why/weep
        why/wait why/smile when/return when/come when/leave""",
    "questions with have": """
        where/gone where/been what/found what/done what/seen what/said what/taken what/lost what/heard why/gone
        why/returned""",
    # past tense
    "verbs of perception": "saw liked loved remembered noticed admired described mentioned found",
    "verbs with people": """
        saw loved followed helped watched hated thanked knew met remembered admired spoke_to looked_at waited_for
        walked_with listened_to laughed_at""",
    "verbs of relations": "loved admired hated knew helped followed watched remembered met",
    "verbs with reflexives": """
        blamed hated hurt saved amused deceived enjoyed defended excused consoled despised pitied comforted dressed
        seated flattered accused reproached""",
    "verbs of trade": "bought found saw lost sold kept brought",
    "verbs with clauses": "knew heard saw remembered forgot understood discovered noticed guessed explained",
    "verbs of possession": "saw had found bought wanted received",
    # other
    "adjectives of people": "old young poor little good tall strange kind clever brave",
    "adjectives of things": "old new little small large beautiful strange dark black white pretty fine red",
    "states": """
        happy tired here afraid asleep ready angry ill alone silent proud very_busy at_home in_love""",
    "prepositions": "near behind beside",
    "endings": "yesterday again at_last at_once once_more in_the_morning in_the_evening in_the_end that_day",
    "beginnings": "yesterday then at_last once that_night in_the_evening one_day after_that",
    "times": "in_those_days at_that_time that_year that_winter in_that_village",
    "frequencies": "often always sometimes",
    "plurals": "letters books flowers horses pictures ships birds houses",
    "numbers": "two three four five six several many",
    "claims with any": """
        had_any_money had_any_friends had_any_hope said_anything did_anything saw_anybody had_ever_seen_the_sea
        had_ever_been_happy had_ever_come_back""",
    "modals": "did will could must should would",
    "conjunctions": "before after without",
}  # fmt: skip

# {base form of an irregular verb: nouns that can be its object}
OBJECTS = {
    "take": "book letter key money ring sword horse box",
    "write": "book letter story song",
    "break": "window glass lamp bottle chair cup",
    "steal": "money ring horse box sword book",
    "eat": "bread apple dinner breakfast supper fish",
    "throw": "stone ball hat book stick",
    "choose": "ring book horse picture flower",
    "wear": "hat ring coat sword dress gown",
    "tear": "letter paper dress coat",
    "drive": "horse carriage cart",
    "draw": "picture sword knife",
    "forgive": "enemy wife daughter son",
}


class Lexicon:
    """The entries of each class whose words all occur at least `minimum` times in a text.

    Args:
        counts: {word in lower case: number of occurrences}. Default: all entries are kept.
        minimum: minimum number of occurrences of a word.

    Raises:
        ValueError: fewer than two entries of a class are left.
    """

    def __init__(self, counts: Mapping[str, int] | None = None, minimum: int = 0):
        self.counts, self.minimum = counts, minimum
        self.classes = {name: self._kept(name, text.split()) for name, text in CLASSES.items()}
        self.objects = {verb: self._kept(f"objects of {verb}", nouns.split()) for verb, nouns in OBJECTS.items()}

    def _kept(self, name: str, entries: list[str]) -> list[tuple[str, ...]]:
        forms = [tuple(form.replace("_", " ") for form in entry.split("/")) for entry in entries]
        kept = [entry for entry in forms if not self.rare(" ".join(entry).split())]
        if len(kept) < min(2, len(forms)):
            missing = ", ".join(sorted(set(self.rare(" ".join(map(" ".join, forms)).split()))))
            raise ValueError(
                f"Two entries of every class of words must occur at least {self.minimum} times. Received: "
                f"{len(kept)} of the class {name!r}; too rare: {missing}. Use a longer text or a lower minimum."
            )
        return kept

    def rare(self, words: Iterable[str]) -> list[str]:
        """Returns the words that occur fewer than `minimum` times."""
        return (
            [] if self.counts is None else [word for word in words if self.counts.get(word.lower(), 0) < self.minimum]
        )


class Draw:
    """Draws entries of a lexicon at random.

    Of Python's generator, only `random()` is used, because no other method gives the same values in all Python
    versions.
    """

    def __init__(self, lexicon: Lexicon, seed: str):
        self.lexicon, self.random = lexicon, random.Random(seed)

    def choice(self, items):
        return items[int(self.random.random() * len(items))]

    def forms(self, name: str) -> tuple[str, ...]:
        """Draws an entry of a class. Returns its forms."""
        return self.choice(self.lexicon.classes[name])

    def __call__(self, name: str) -> str:
        """Draws an entry of a class. Returns its first form."""
        return self.forms(name)[0]

    def two_forms(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Draws two different entries. Returns their forms."""
        first = self.forms(name)
        return first, self.choice([entry for entry in self.lexicon.classes[name] if entry != first])

    def two(self, name: str) -> tuple[str, str]:
        """Draws two different entries. Returns their first forms."""
        first, second = self.two_forms(name)
        return first[0], second[0]

    def object_of(self, verb: tuple[str, ...]) -> str:
        """Draws a noun that can be the object of an irregular verb."""
        return self.choice(self.lexicon.objects[verb[0]])[0]
