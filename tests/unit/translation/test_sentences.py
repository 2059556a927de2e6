"""Sentence splitting and joining in many languages."""

import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.translation.sentences import Sentence, join_sentences, split_sentences

# One text in a line: the language, then its sentences. " | " stands for the space between them, "|" for no space.
TABLE = """
en: Mr. Smith met Dr. Brown. | He left.
en: Dr. Smith met J. R. R. Tolkien. | He said "Go away." | Then he left.
en: It costs 3.50 dollars. | See e.g. Table 2.
en: No. 5 is alive. | No. | He is dead.
en: It was I. | He left. | I. Newton was a friend.
en: They live in the U.S. | They like it.
en: The U.S. Army came at 5 p.m. | He was asleep.
en: He works for Acme Inc. | The company makes anvils for Acme Corp. Ltd. and others.
en: Yahoo! is big. | So is Yahoo! Finance. | Really?! | Yes!
en: See www.example.com/a.b?c=d!x for more. | Write to a.b@example.com. | Thanks.
en: Wait... what? ok. | Wait… | What now?
en: “Yes.” | “No.” | (Applause.) | Thank you.
en: "Stop!" he said. | 'Why?' asked she.
en: He was born in 1999. | 20 people came. | In 2001. | Then nothing.
en: He died in 1990.[12] | Later, others did.[3][4] | The end.
en: She saw it (see Fig. 3). | Smith et al. (2020) did not.
en: World War II. | Tom was 30. | Bill was not.
en: Pi is 3.14159. | The U.K. is old. | It rains on Nov. 5 or Dec. 6.
en: Great! | 😀 Then 👨‍👩‍👧 came. | 👍🏽 Good! 😀
en: Of three: 1. Apples. | 2. Pears. | 3. Plums.
en: HE MET DR. BROWN. | HE LEFT THE U.S. | THEN HE DIED.
en: Hello . . . it is me.
de: Am 3. Mai ging er. | Dann kam sie am 24.12. Abends.
de: Im 19. Jahrhundert lebte König Ludwig XIV. von Frankreich nicht mehr. | Das ist bekannt.
de: Er ist 30. | Das ist alt. | Er wurde 1990 geboren. | Sie auch.
de: Er mag z. B. Äpfel, Birnen usw. | Das ist bekannt. | Sie mag z.B. Nüsse, d. h. Haselnüsse.
de: Prof. Dr. Müller wohnt in der Goethestr. 5. | Sie kennen ihn.
de: „Geh weg!“ | Er ging. | „Halt!“, rief sie. | »Nein.« | »Doch.«
de: Ich bin müde. | Übrigens: Du auch? | Äh...
de: Siehe S. 12, Abb. 3 und Nr. 7. | Die Fa. Maier zahlt ca. 3,5 Mio. Euro.
fr: M. Dupont et Mme Martin sont là. | Ils mangent, p. ex. Camembert et Brie, etc. | C’est bon.
fr: Il a dit : « Oui. » | Puis il partit. | Vraiment ? | Oui !
fr: Voir p. 12, fig. 3. | Le roi Louis XIV régnait. | J.-P. Sartre écrivait.
es: ¿Dónde está el Sr. García? | ¡Aquí! | La Dra. Pérez vive en EE. UU. | Ella trabaja.
es: Vea la pág. 5. | El Prof. Ruiz compra frutas, p. ej. Manzanas.
it: Il Sig. Rossi e il Dott. Bianchi sono qui. | Mangiano pane, vino ecc. | La cena è pronta.
pt: O Sr. Silva e a Dra. Souza chegaram. | Veja a pág. 3. | Ele saiu.
nl: Dhr. Jansen eet fruit, bijv. Appels enz. | Dat is gezond. | Zie blz. 5.
sv: Hr. Svensson äter t.ex. Äpplen. | Det är gott.
da: Den 3. maj kom Chr. 4. | Han spiste f.eks. Æbler. | Det var godt.
no: Den 17. mai er nasjonaldag. | Han heter f.eks. Olav. | Ja!
fi: Hän syntyi 3. toukokuuta. | Esim. Turku on kaupunki. | Niin on.
pl: Prof. Kowalski mieszka przy ul. Długiej. | Urodził się w 1990 r. | On pisze np. Wiersze itd. | To wszystko.
cs: Prof. Novák bydlí na nám. Míru. | Narodil se 3. Května. | Např. Praha je město.
tr: Dr. Yılmaz geldi. | Bu, 3. Selim'in sarayı. | Evet.
hu: Dr. Kovács 3. Béla királyról írt. | Ez jó.
ru: Проф. Иванов живёт на ул. Ленина. | Он родился в 1990 г. в Москве. | А. С. Пушкин писал стихи и т. д. | Это всё.
ru: — Привет! — сказал он. | — Здравствуй. | — Как дела?
uk: Проф. Шевченко живе на вул. Франка. | Він пише, т. д. | Це все.
el: Γεια σου; | Πώς είσαι; | Ο κ. Παπαδόπουλος ήρθε, π.χ. Χθες.
vi: TS. Nam sống ở TP. Hồ Chí Minh. | Anh ấy vui.
ar: هل أنت هنا؟ | نعم. | جاء د. أحمد اليوم. | ذهب.
fa: آیا اینجا هستی؟ | بله.
ur: کیا حال ہے؟ | ٹھیک ہے۔ | شکریہ۔
he: איפה אתה? | אני כאן. | שלום!
hi: मैं घर जाता हूँ। | डॉ. शर्मा आती हैं।|क्या हाल है? | ठीक है।
bn: আমি বাড়ি যাই। | সে আসে।
hy: Բարեւ։ | Ինչպես ես։
am: ሰላም። | እንዴት ነህ፧ | ደህና።
my: မင်္ဂလာပါ။ | နေကောင်းလား။
ko: 네. | 저는 학생입니다. | 정말요? | 예!
th: สวัสดีครับ ผมชื่อโจ คุณล่ะ
zh: 你好。|世界！|好
zh: 他说：“你好。再见。”|然后走了。|“走吧！”他说。|我们走了……就这样。
zh: 圆周率是3.14。|你去过example.com吗？|没有！？|他走了。|（他很累。）
ja: 「はい。」と言った。|そして「いいえ。だめです。」と答えた。
ja: 今日は暑い。|明日は？|「そう。」|「うん！」|彼は笑った。
ja: 昨日（日曜日。雨だった。）は家にいた。|終わり。
"""


def rows() -> list[tuple[str, list[str]]]:
    table = []
    for line in TABLE.strip().splitlines():
        language, _, text = line.partition(": ")
        table.append((language, text.replace(" | ", " |").split("|")))
    return table


def test_the_table_is_large_enough() -> None:
    assert sum(len(pieces) for _, pieces in rows()) >= 60
    assert len({language for language, _ in rows()}) >= 15


@pytest.mark.parametrize(("language", "pieces"), rows())
def test_sentences_of_many_languages(language: str, pieces: list[str]) -> None:
    expected = [Sentence(piece.rstrip(), " " if piece.endswith(" ") else "") for piece in pieces]
    text = "".join(pieces)
    assert split_sentences(text, language) == expected
    assert split_sentences(f"  {text}\n", f"{language}-XX") == expected


@pytest.mark.parametrize(
    ("language", "pieces"), [row for row in rows() if row[0] in ("de", "fr", "ru", "el", "hi", "ar", "zh", "ja")]
)
def test_without_a_language_abbreviations_of_all_languages_count(language: str, pieces: list[str]) -> None:
    assert [part.text for part in split_sentences("".join(pieces))] == [piece.rstrip() for piece in pieces]


def test_codes_of_a_language() -> None:
    for code in ("de", "de-AT", "de_DE", "deu", "DE"):
        assert len(split_sentences("Er kam am 3. Mai.", code)) == 1
    assert len(split_sentences("He was 3. May was 4.", "en")) == 2
    assert len(split_sentences("He was here. So?", "not a language!")) == 2


def test_a_line_end_ends_a_sentence_and_is_kept() -> None:
    text = "first line\nsecond. Line\r\n\n  - bullet\n  1. One\u2028two"
    sentences = split_sentences(text)
    assert [part.text for part in sentences] == ["first line", "second.", "Line", "- bullet", "1. One", "two"]
    assert [part.separator for part in sentences] == ["\n", " ", "\r\n\n  ", "\n  ", "\u2028", ""]


def test_no_text_has_no_sentences() -> None:
    assert split_sentences("") == split_sentences(" \n ") == []
    assert split_sentences(".") == [Sentence(".", "")]


ODD = "aAäÄ1.!?…;\n \t\"'()[]«»“”。！「」『』（と中ก。।؟\u0301\u200d👨😀\ud800\x85\u3000I‥-—"


@example("a. \u0301B. C", "en")
@example("。「a。」", None)
@given(st.text(alphabet=st.sampled_from(ODD), max_size=60), st.sampled_from([None, "en", "de", "ja", "el"]))
def test_the_text_can_be_restored(text: str, language: str | None) -> None:
    sentences = split_sentences(text, language)
    assert "".join(part.text + part.separator for part in sentences) == text.strip()
    for part in sentences:
        assert part.text == part.text.strip()
        assert part.text
        assert not part.separator.strip()
        assert "\n" not in part.text
        assert not unicodedata.category(part.text[0]).startswith("M") or part is sentences[0] or "\n" in text


HOSTILE = [
    *(
        ".",
        " ",
        "\t",
        "!?",
        ". ",
        '"',
        '."',
        "(",
        ".)",
        "[1]",
        ".[1] ",
        "\u0301",
        "a\u200d",
        "👨\u200d",
        "Dr. ",
        "A. ",
        "1. ",
    ),
    *("z. B. ", "\n", "\r\n", "。", "「", "「。", "。」", "。“中", "…", " \u0301", "; "),
]


@pytest.mark.parametrize("function", ["split_sentences(text)", "split_long(text, lambda part: len(part) <= 100)"])
def test_hostile_text_does_not_take_quadratic_time(function: str) -> None:
    """Runs in another process, as a regular expression cannot be interrupted; quadratic time would take minutes."""
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"  # unlike a timeout, independent of other processes
        "from transduce.translation.sentences import split_sentences\n"
        "from transduce.translation.stages.split import split_long\n"
        f"for run in {HOSTILE!r}:\n"
        "    text = 'a' + run * (20_000 // len(run)) + 'b'\n"
        f"    assert ''.join(map(''.join, {function})) == text\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_can_split_at_the_same_time() -> None:
    texts = [f"Mr. Smith {n} left. Then Dr. Brown did. 他走了。😀 好！ " * 20 for n in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(split_sentences, texts)) == [split_sentences(text) for text in texts]


def test_a_missing_icu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu4py", None)
    with pytest.raises(DataError, match=r"pip install 'transduce\[icu\]'"):
        split_sentences("他走了。好！")
    assert [sentence.text for sentence in split_sentences("One. Two.")] == ["One.", "Two."]
    assert split_sentences("A single sentence.") == [Sentence("A single sentence.", "")]


def test_icu_is_imported_only_if_it_is_needed() -> None:
    code = "import transduce.translation.stages.split, sys; assert 'icu4py' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Joining


@pytest.mark.parametrize(
    ("translations", "separators", "language", "joined"),
    [
        (["Hello.", "World."], ["", ""], "en", "Hello. World."),
        (["Hello.", "World."], ["  ", ""], None, "Hello. World."),
        (["你好。", "世界。"], [" ", ""], "zh", "你好。世界。"),
        (["はい。", "そう。"], [" ", ""], "ja-JP", "はい。そう。"),
        (["Hello.", "World."], [" ", ""], "ja", "Hello. World."),
        (["สวัสดี", "ผมชื่อโจ"], [" ", ""], "th", "สวัสดี ผมชื่อโจ"),
        (["네.", "예!"], [" ", ""], "ko", "네. 예!"),
        (["One.", "Two.", "三。"], ["\n\n", "\r\n  ", ""], "zh", "One.\n\nTwo.\r\n  三。"),
        (["a", "b", "c"], ["\t", "\u3000", ""], "en", "a\tb c"),
        (["One.", "", "Three."], [" ", " ", ""], "en", "One. Three."),
        (["One.", "", "Three."], [" ", "\n", ""], "en", "One.\nThree."),
        (["", "Two."], [" ", ""], "en", "Two."),
        ([], [], "en", ""),
    ],
)
def test_sentences_are_joined_as_the_language_does(
    translations: list[str], separators: list[str], language: str | None, joined: str
) -> None:
    assert join_sentences(translations, separators, language) == joined
