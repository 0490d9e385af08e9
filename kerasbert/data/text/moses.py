"""The text preprocessing of XLM: Moses punctuation rules and English tokenizer, lower-casing and accent removal.

Lample, Conneau 2019 (arXiv 1901.07291) preprocessed their text with Perl scripts of the Moses translation system:
replace-unicode-punctuation, normalize-punctuation, remove-non-printing-char, and tokenizer. This module implements the
rules for English, which transformers also applies to all languages unless a language is specified.
"""

import functools
import re
import unicodedata

# Hexadecimal code points that the scripts treat as letters and as numbers, according to the Unicode version of Perl at
# that time, without Han and Hangul.
_LETTERS = """
41-5a 61-7a aa b5 ba c0-d6 d8-f6 f8-2c1 2c6-2d1 2e0-2e4 2ec 2ee 345 370-374 376-377 37a-37d 37f 386 388-38a 38c
38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 559 561-587 5b0-5bd 5bf 5c1-5c2 5c4-5c5 5c7 5d0-5ea 5f0-5f2 610-61a
620-657 659-65f 66e-6d3 6d5-6dc 6e1-6e8 6ed-6ef 6fa-6fc 6ff 710-73f 74d-7b1 7ca-7ea 7f4-7f5 7fa 800-817 81a-82c
840-858 8a0-8b2 8e4-8e9 8f0-950 955-963 971-983 985-98c 98f-990 993-9a8 9aa-9b0 9b2 9b6-9b9 9bc-9c4 9c7-9c8
9cb-9ce 9d7 9dc-9dd 9df-9e3 9f0-9f1 a01-a03 a05-a0a a0f-a10 a13-a28 a2a-a30 a32-a33 a35-a36 a38-a39 a3c a3e-a42
a47-a48 a4b-a4d a51 a59-a5c a5e a70-a75 a81-a83 a85-a8d a8f-a91 a93-aa8 aaa-ab0 ab2-ab3 ab5-ab9 abc-ac5 ac7-ac9
acb-acd ad0 ae0-ae3 afd-aff b01-b03 b05-b0c b0f-b10 b13-b28 b2a-b30 b32-b33 b35-b39 b3c-b44 b47-b48 b4b-b4d
b56-b57 b5c-b5d b5f-b63 b71 b82-b83 b85-b8a b8e-b90 b92-b95 b99-b9a b9c b9e-b9f ba3-ba4 ba8-baa bae-bb9 bbe-bc2
bc6-bc8 bca-bcd bd0 bd7 c00-c03 c05-c0c c0e-c10 c12-c28 c2a-c39 c3d-c44 c46-c48 c4a-c4d c55-c56 c58-c59 c60-c63
c81-c83 c85-c8c c8e-c90 c92-ca8 caa-cb3 cb5-cb9 cbc-cc4 cc6-cc8 cca-ccd cd5-cd6 cde ce0-ce3 cf1-cf2 d01-d03
d05-d0c d0e-d10 d12-d44 d46-d48 d4a-d4e d57 d60-d63 d7a-d7f d82-d83 d85-d96 d9a-db1 db3-dbb dbd dc0-dc6 dca
dcf-dd4 dd6 dd8-ddf df2-df3 e01-e3a e40-e46 e4d e81-e82 e84 e87-e88 e8a e8d e94-e97 e99-e9f ea1-ea3 ea5 ea7
eaa-eab ead-ebd ec0-ec4 ec6 ecd edc-edf f00 f40-f47 f49-f6c f71-f81 f88-f97 f99-fbc 1000-1036 1038-1039 103b-103f
1050-1062 1065-1068 106e-1086 108e 109c-109d 10a0-10c5 10c7 10cd 10d0-10fa 10fc-1248 124a-124d 1250-1256 1258
125a-125d 1260-1288 128a-128d 1290-12b0 12b2-12b5 12b8-12be 12c0 12c2-12c5 12c8-12d6 12d8-1310 1312-1315 1318-135a
135f 1380-138f 13a0-13f4 1401-166c 166f-167f 1681-169a 16a0-16ea 16ee-16f8 1700-170c 170e-1714 1720-1733 1740-1753
1760-176c 176e-1770 1772-1773 1780-17b3 17b6-17c8 17d7 17dc 1820-1877 1880-18aa 18b0-18f5 1900-191e 1920-192b
1930-1938 1950-196d 1970-1974 1980-19ab 19b0-19c9 1a00-1a1b 1a20-1a5e 1a61-1a74 1aa7 1b00-1b33 1b35-1b43 1b45-1b4b
1b80-1ba9 1bab-1baf 1bba-1be5 1be7-1bf1 1c00-1c35 1c37 1c4d-1c4f 1c5a-1c7d 1ce9-1cec 1cee-1cf3 1cf5-1cf6 1d00-1dbf
1de7-1df4 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe
1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2071 207f 2090-209c 2102 2107 210a-2113 2115
2119-211d 2124 2126 2128 212a-212d 212f-2139 213c-213f 2145-2149 214e 2160-2188 24b6-24e9 25cc 2c00-2c2e 2c30-2c5e
2c60-2ce4 2ceb-2cee 2cf2-2cf3 2d00-2d25 2d27 2d2d 2d30-2d67 2d6f 2d80-2d96 2da0-2da6 2da8-2dae 2db0-2db6 2db8-2dbe
2dc0-2dc6 2dc8-2dce 2dd0-2dd6 2dd8-2dde 2de0-2dff 2e2f 3006 3031-3035 303c 3041-3096 309d-309f 30a1-30fa 30fc-30ff
3105-312d 3131-318e 31a0-31ba 31f0-31ff a000-a48c a4d0-a4fd a500-a60c a610-a61f a62a-a62b a640-a66e a674-a67b
a67f-a69d a69f-a6ef a717-a71f a722-a788 a78b-a78e a790-a7ad a7b0-a7b1 a7f7-a801 a803-a805 a807-a80a a80c-a827
a840-a873 a880-a8c4 a8f2-a8f7 a8fb a90a-a92a a930-a953 a960-a97c a980-a9b2 a9b4-a9bf a9cf a9e0-a9e4 a9e6-a9ef
a9fa-a9fe aa00-aa36 aa40-aa4d aa60-aa76 aa7a aa7e-aabe aac0 aac2 aadb-aadd aae0-aaef aaf2-aaf6 ab01-ab06 ab09-ab0e
ab11-ab16 ab20-ab26 ab28-ab2e ab30-ab5a ab5c-ab5f ab64-ab65 abc0-abea d7b0-d7c6 d7cb-d7fb fb00-fb06 fb13-fb17
fb1d-fb28 fb2a-fb36 fb38-fb3c fb3e fb40-fb41 fb43-fb44 fb46-fbb1 fbd3-fd3d fd50-fd8f fd92-fdc7 fdf0-fdfb fe70-fe74
fe76-fefc ff21-ff3a ff41-ff5a ff66-ffbe ffc2-ffc7 ffca-ffcf ffd2-ffd7 ffda-ffdc 10a3f 11046 110b9-110ba 11133
11173 111c0 111ca 11235-11236 112e9-112ea 1133c 1134d 11442 11446 114c2-114c3 115bf-115c0 1163f 116b6-116b7
11839-1183a 119e0 11a34 11c3f 11d42 11d45 11d97 1e94a
"""
_NUMBERS = """
30-39 b2-b3 b9 bc-be 660-669 6f0-6f9 7c0-7c9 966-96f 9e6-9ef 9f4-9f9 a66-a6f ae6-aef b66-b6f b72-b77 be6-bf2
c66-c6f c78-c7e ce6-cef d66-d75 de6-def e50-e59 ed0-ed9 f20-f33 1040-1049 1090-1099 1369-137c 16ee-16f0 17e0-17e9
17f0-17f9 1810-1819 1946-194f 19d0-19da 1a80-1a89 1a90-1a99 1b50-1b59 1bb0-1bb9 1c40-1c49 1c50-1c59 2070 2074-2079
2080-2089 2150-2182 2185-2189 2460-249b 24ea-24ff 2776-2793 2cfd 3192-3195 3220-3229 3248-324f 3251-325f 3280-3289
32b1-32bf a620-a629 a6e6-a6ef a830-a835 a8d0-a8d9 a900-a909 a9d0-a9d9 a9f0-a9f9 aa50-aa59 abf0-abf9 ff10-ff19
"""


def _character_class(ranges):
    pairs = ([int(end, 16) for end in item.split("-")] for item in ranges.split())
    return "".join(re.escape(chr(pair[0])) + (f"-{re.escape(chr(pair[1]))}" if pair[1:] else "") for pair in pairs)


_FULL_STOPS = (re.compile("[。．]\\s*"), ". ")
_TO_ASCII = str.maketrans(
    dict(zip("，、”“∶：？《》）！（；」「～’…━〈〉【】％", ',,""::?"")!(;""~\'\0-<>[]%', strict=True))
    | {chr(0xFF10 + digit): str(digit) for digit in range(10)}
)
_TO_ASCII[ord("…")] = "..."

_SPACE = "\u00a0"  # no-break space

_PUNCTUATION = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        ("\r", ""),
        (r"\(", " ("),
        (r"\)", ") "),
        (" +", " "),
        (r"\) ([.!:?;,])", r")\1"),
        (r"\( ", "("),
        (r" \)", ")"),
        (r"(\d) %", r"\1%"),
        (" :", ":"),
        (" ;", ";"),
        ("`", "'"),
        ("''", ' " '),
        ("[„“”]", '"'),
        ("–", "-"),
        ("—", " - "),
        (" +", " "),
        ("´", "'"),
        ("([a-zA-Z])‘([a-zA-Z])", r"\1'\2"),
        ("([a-zA-Z])’([a-zA-Z])", r"\1'\2"),
        ("[‘‚’]", "'"),
        ("''", '"'),
        ("…", "..."),
        (f"{_SPACE}«{_SPACE}|«{_SPACE}|«", '"'),
        (f"{_SPACE}»{_SPACE}|{_SPACE}»|»", '"'),
        (f"{_SPACE}%", "%"),
        (f"nº{_SPACE}", "nº "),
        (f"{_SPACE}:", ":"),
        (f"{_SPACE}ºC", " ºC"),
        (f"{_SPACE}cm", " cm"),
        (f"{_SPACE}([?!;])", r"\1"),
        (f",{_SPACE}", ", "),
        (" +", " "),
        ('"([,.]+)', r'\1"'),
        (rf"(\d){_SPACE}(\d)", r"\1.\2"),
    ]
]

_DOTS = "\ue000"  # placeholder for each of several consecutive dots; private-use characters have been removed by then

_ABBREVIATIONS = set(
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con "
    "Corp Cpl DR Dr Drs Ens Gen Gov Hon Hr Hosp Insp Lt MM MR MRS MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord Pfc Ph "
    "Prof Pvt Rep Reps Res Rev Rt Sen Sens Sfc Sgt Sr St Supt Surg v vs i.e rev e.g Rs Nos Nr Jan Feb Mar Apr Jun Jul "
    "Aug Sep Oct Nov Dec".split()
)
_BEFORE_NUMBERS = {"No", "Art", "pp"}  # abbreviations only before a number


def normalize_punctuation(text):
    """Converts typographic marks to ASCII, spaces brackets, and removes control characters, including line breaks."""
    text = _FULL_STOPS[0].sub(_FULL_STOPS[1], text).translate(_TO_ASCII)
    for pattern, replacement in _PUNCTUATION:
        text = pattern.sub(replacement, text)
    return "".join(c for c in text.strip() if not unicodedata.category(c).startswith("C"))


def tokenize(text):
    """Splits a text into words and punctuation marks.

    He said: "it's 5,300 U.S. dollars." -> He said : " it 's 5,300 U.S. dollars . "
    """
    text = re.sub(r"\s+", " ", text).strip()
    for pattern, replacement in _separation():
        text = pattern.sub(replacement, text)
    words = text.split()
    following = [*words[1:], ""][: len(words)]
    text = " ".join(_split_full_stop(word, after) for word, after in zip(words, following, strict=True))
    return re.sub(r"\.' ?$", " . ' ", text).replace(_DOTS, ".").split()


@functools.cache
def _letter():
    """A pattern that matches a letter."""
    return re.compile(f"[{_character_class(_LETTERS)}]")


@functools.cache
def _separation():
    """The rules that separate tokens: patterns with replacements. Compiling them takes a tenth of a second."""
    a, n = _character_class(_LETTERS), _character_class(_NUMBERS)
    numbers = filter(re.compile(f"[{n}]").match, map(chr, range(0x10000)))
    # Decimal digits only, without other numbers (fractions, superscripts).
    digits = _character_class(" ".join(f"{ord(c):x}" for c in numbers if unicodedata.category(c) == "Nd"))
    rules = [
        (rf"([^{a}{digits}\s.'`,\-])", r" \1 "),  # all other symbols are separate tokens
        (r"\.{2,}", lambda dots: f" {_DOTS * len(dots[0])} "),  # consecutive dots stay together
        (rf"([^{n}]),", r"\1 , "),  # a comma is a separate token unless it is between numbers
        (rf",([^{n}])", r" , \1"),
        (rf"([{n}]),$", r"\1 , "),
        (rf"([^{a}])'([^{a}])", r"\1 ' \2"),  # within a word, an apostrophe stays with the letters after it: it 's
        (rf"([^{a}{n}])'([{a}])", r"\1 ' \2"),
        (rf"([{a}])'([^{a}])", r"\1 ' \2"),
        (rf"([{a}])'([{a}])", r"\1 '\2"),
        (rf"([{n}])'(s)", r"\1 '\2"),
    ]
    return [(re.compile(pattern), replacement) for pattern, replacement in rules]


def _split_full_stop(word, after):
    if len(word) < 2 or not word.endswith("."):
        return word
    stem = word[:-1]
    if ("." in stem and _letter().search(stem)) or stem in _ABBREVIATIONS or _is_lower(after[:1]):
        return word
    if stem in _BEFORE_NUMBERS and re.match("[0-9]", after):
        return word
    return f"{stem} ."


def _is_lower(letter):
    return letter.islower() and not "\u10d0" <= letter <= "\u10ff"  # Georgian had no case at the time


def prepare(text, lowercase=True):
    """Prepares a text for XLM's vocabularies: words and punctuation marks, separated by single spaces.

    Café "Zoë's" (1,000) -> cafe " zoe 's " ( 1,000 )
    """
    words = " ".join(tokenize(normalize_punctuation(text)))
    if not lowercase:
        return words
    letters = unicodedata.normalize("NFD", words.lower())
    return "".join(c for c in letters if unicodedata.category(c) != "Mn").lower()
