"""Text of every kind that a tokenizer may meet, one text a line."""

import itertools

import numpy as np

# Article 1 of the Universal Declaration of Human Rights, or a line in its manner, in many scripts.
SCRIPTS = [
    "All human beings are born free and equal in dignity and rights.",
    "Toate ființele umane se nasc libere și egale în demnitate și în drepturi.",
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια. ΟΔΥΣΣΕΥΣ",
    "כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם. שָׁלוֹם",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में स्वतन्त्रता प्राप्त है।",
    "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা নিয়ে জন্মগ্রহণ করে।",
    "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "ყველა ადამიანი იბადება თავისუფალი. ՄԱՐԴԻԿ ծնվում են ազատ",
    "人人生而自由，在尊严和权利上一律平等。「他们」赋有：理性（良心）！１２３．",
    "すべての人間は、生まれながらにして自由であり、ﾊﾝｶｸ ＡＢＣ",
    "모든 인간은 태어날 때부터 자유로우며 각각",
    "İstanbul'da ıssız Iğdır STRASSE Straße ﬁne ﬂow Ǆ ǅ ½ ² ™ № ℃ Å ①",
    "👩‍👩‍👧‍👦 🏳️‍🌈 ❤️ 👍🏽 🇩🇪🇫🇷 😀😀 #️⃣ ☕ (╯°□°)╯︵ ┻━┻",
    "e\u0301 a\u0308\u0323 Z\u0335\u0321\u0355a\u0489l\u0322g\u0327o\u0334 n\u0303",
]
MARKS = [
    '"No," said Mr. Smith (of St. Ives, No. 5): "it\'s 5,300 U.S. dollars... isn\'t it?" -- \'Tis the \'90s.',
    "“Well—” she said; ‘you’re “quite” right…’ «Oui !» ''quoted`` a.b.c. e.g. this, i.e. that. etc.,",
    "http://www.example.org/~a_b?c=d&e=%20#f me@example.com @user #tag $1,000.00 50 % 3.14,15 10:30 a/b \\ c|d",
    "tab\tline\nfeed\rreturn\x0bvertical\x0cform\x85next\u2028line\u2029paragraph\u00a0no-break\u3000wide",
    "zero\u200bwidth\u200djoin\ufeffmark\u00adsoft\u2060word \x00\x01\x1f\x7f\x9f \ufffd \ue000",
    "[MASK] [CLS][SEP] <mask> <s>a</s> <extra_id_0> <special1>x <unk> <pad>",
    "a  b   c    d ", "  lead", "trail  ", " ", "", "x" * 150, "!?" * 40, "9,000 and 3, 4, 5,", "it's we'll WE'LL I'm",
]  # fmt: skip
BLOCKS = [
    *[(0x20, 0x7E)] * 6, (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x600, 0x6FF),
    (0x900, 0x97F), (0xE00, 0xE7F), (0x10A0, 0x10FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x2BFF),
    (0x3000, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFDFF), (0xFE00, 0xFFEF), (0x1D400, 0x1D7FF),
    (0x1F300, 0x1FAFF), (0x00, 0x1F), (0x7F, 0x9F),
]  # fmt: skip


def random_lines(count, seed=0):
    """Words drawn from the blocks of Unicode, several scripts a line."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        words = []
        for block in random.integers(0, len(BLOCKS), random.integers(1, 8)):
            first, last = BLOCKS[block]
            words.append("".join(map(chr, random.integers(first, last + 1, random.integers(1, 7)))))
        lines.append(str(random.choice(["", " ", " "])).join(words))
    return lines


def own_lines():
    return SCRIPTS + MARKS + random_lines(400)


def shared_lines(folder, count=10_000):
    """Novels in three languages, tweets, sentences in ten languages; the lines above and more of their kind."""
    lines = own_lines() + random_lines(1_100, seed=1)
    for path in ("pretraining/lm_en_5mb.txt", "pretraining/lm_de_5mb.txt", "pretraining/lm_fr_5mb.txt"):
        with open(folder / path, encoding="utf-8") as file:
            lines += itertools.islice((line.rstrip("\n") for line in file if line.strip()), 1_800)
    for path in sorted((folder / "tagging").iterdir()):
        words = [line.split("\t")[0] for line in path.read_text(encoding="utf-8").split("\n")]
        lines += " ".join(word or "\n" for word in words).split("\n")[:700]
    for path in sorted((folder / "parallel" / "tatoeba").iterdir()):
        lines += path.read_text(encoding="utf-8").split("\n")[:200]
    assert len(lines) >= count
    return lines[:count]
