"""The words of the demo corpus, one entry a line, and the frozen records the lines are parsed into.

Tags say which words go together: a verb lists the tags of its subjects, objects and locations, an
adjective those of the nouns it describes.  Nouns tagged "unowned" take no possessive, "kin" no "a" and
"single" seldom a plural.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A noun of gender m, f, n or w (weak masculine: "den Jungen"); mass nouns have "-" for a plural."""

    english: str
    english_plural: str
    german: str
    gender: str
    german_plural: str
    tags: str


@dataclass(frozen=True)
class Adjective:
    """An adjective, its German predicative form and the stem that takes endings."""

    english: str
    german: str
    stem: str
    tags: str


@dataclass(frozen=True)
class Verb:
    """A verb in both languages, the case of its objects, and the tags of the words it goes with."""

    base: str
    past: str
    particle: str
    prefix: str
    infinitive: str
    present: tuple[str, ...]  # for I, you (singular), he/she/it, and the plural
    auxiliary: str
    participle: str
    subjects: str
    frame: str  # "acc", "dat", "dat+acc" (with a recipient), a preposition and its case, or nothing
    objects: str
    adjuncts: str  # tags of locations, or "state" for verbs that take no time, place or modal


@dataclass(frozen=True)
class Adverb:
    """An adverb; its kind is a tense, "frequency" or "mid" (any tense, no negation), or tags of locations."""

    english: str
    german: str
    kind: str


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _verb(line: str) -> Verb:
    """Reads English base, past and particle | German infinitive, "er" form and perfect | the rest."""
    english, german, *tags = _cells(line)
    base, past, *particle = english.split()
    infinitive, er, auxiliary, participle = german.split()
    prefix, _, infinitive = infinitive.rpartition("+")
    # As in the modals, "weiß" lacks the -t of the third person and serves as the first person too.
    ich = infinitive.removesuffix("n").removesuffix("e") + "e" if er.endswith("t") else er
    du = er.removesuffix("t") + ("t" if er.removesuffix("t").endswith(("s", "ß", "z")) else "st")
    forms = (ich, du, er, infinitive)
    auxiliary = {"hat": "haben", "ist": "sein"}[auxiliary]
    return Verb(base, past, " ".join(particle), prefix, infinitive, forms, auxiliary, participle, *tags)


NOUNS = [
    Noun(*line.split(maxsplit=5))
    for line in """\
man        men         Mann        m  Männer        person unowned adult
woman      women       Frau        f  Frauen        person unowned adult
child      children    Kind        n  Kinder        person minor
boy        boys        Junge       w  Jungen        person unowned minor
girl       girls       Mädchen     n  Mädchen       person unowned minor
friend     friends     Freund      m  Freunde       person adult
teacher    teachers    Lehrer      m  Lehrer        person adult
student    students    Student     w  Studenten     person unowned adult
doctor     doctors     Arzt        m  Ärzte         person adult
neighbor   neighbors   Nachbar     w  Nachbarn      person adult
mother     mothers     Mutter      f  Mütter        person kin adult single
father     fathers     Vater       m  Väter         person kin adult single
sister     sisters     Schwester   f  Schwestern    person kin
brother    brothers    Bruder      m  Brüder        person kin
daughter   daughters   Tochter     f  Töchter       person kin
queen      queens      Königin     f  Königinnen    person unowned adult
farmer     farmers     Bauer       w  Bauern        person unowned adult
dog        dogs        Hund        m  Hunde         animal washable playful
cat        cats        Katze       f  Katzen        animal playful
horse      horses      Pferd       n  Pferde        animal washable
bird       birds       Vogel       m  Vögel         animal
mouse      mice        Maus        f  Mäuse         animal
cow        cows        Kuh         f  Kühe          animal
bear       bears       Bär         w  Bären         animal unowned
rabbit     rabbits     Kaninchen   n  Kaninchen     animal
apple      apples      Apfel       m  Äpfel         food fodder gift washable
pear       pears       Birne       f  Birnen        food fodder gift washable
egg        eggs        Ei          n  Eier          food cooked
tomato     tomatoes    Tomate      f  Tomaten       food washable
potato     potatoes    Kartoffel   f  Kartoffeln    food fodder cooked washable
cake       cakes       Kuchen      m  Kuchen        food baked gift
cookie     cookies     Keks        m  Kekse         food baked gift
soup       -           Suppe       f  -             food cooked served hot
bread      -           Brot        n  -             food fodder baked
cheese     -           Käse        m  -             food fodder
meat       -           Fleisch     n  -             food fodder
water      -           Wasser      n  -             drink served plain
milk       -           Milch       f  -             drink served plain
coffee     -           Kaffee      m  -             drink served hot
tea        -           Tee         m  -             drink served hot
book       books       Buch        n  Bücher        thing readable written gift
newspaper  newspapers  Zeitung     f  Zeitungen     thing readable
letter     letters     Brief       m  Briefe        thing readable written mail
story      stories     Geschichte  f  Geschichten   readable written
coat       coats       Mantel      m  Mäntel        thing clothing
dress      dresses     Kleid       n  Kleider       thing clothing washable
jacket     jackets     Jacke       f  Jacken        thing clothing washable
shoe       shoes       Schuh       m  Schuhe        thing clothing cleaned
lamp       lamps       Lampe       f  Lampen        thing machine switch
cup        cups        Tasse       f  Tassen        thing washable
bag        bags        Tasche      f  Taschen       thing luggage openable
suitcase   suitcases   Koffer      m  Koffer        thing luggage openable
key        keys        Schlüssel   m  Schlüssel     thing
picture    pictures    Bild        n  Bilder        thing gift mail
ball       balls       Ball        m  Bälle         thing gift playful
bicycle    bicycles    Fahrrad     n  Fahrräder     thing machine cleaned
car        cars        Auto        n  Autos         thing machine washable
flower     flowers     Blume       f  Blumen        thing gift mail
radio      radios      Radio       n  Radios        thing machine switch
computer   computers   Computer    m  Computer      thing machine switch
television televisions Fernseher   m  Fernseher     thing machine switch
table      tables      Tisch       m  Tische        thing cleaned
door       doors       Tür         f  Türen         panel openable cleaned
window     windows     Fenster     n  Fenster       panel openable cleaned
garden     gardens     Garten      m  Gärten        place single home nature
kitchen    kitchens    Küche       f  Küchen        place single home room cleaned
house      houses      Haus        n  Häuser        place single home room dwelling
room       rooms       Zimmer      n  Zimmer        place single home room cleaned
city       cities      Stadt       f  Städte        place single town market dwelling
village    villages    Dorf        n  Dörfer        place single town market dwelling
park       parks       Park        m  Parks         place single nature unowned
forest     forests     Wald        m  Wälder        place single nature unowned
school     schools     Schule      f  Schulen       place single town
museum     museums     Museum      n  Museen        place single town unowned
""".splitlines()
]

ADJECTIVES = [
    Adjective(*line.split(maxsplit=3))
    for line in """\
young        jung         jung        adult kin animal
old          alt          alt         adult animal thing place
tall         groß         groß        person
big          groß         groß        animal thing panel place
small        klein        klein       minor animal thing panel place
friendly     freundlich   freundlich  person
clever       klug         klug        person animal
tired        müde         müd         person animal
hungry       hungrig      hungrig     person animal
happy        glücklich    glücklich   person
famous       berühmt      berühmt     person
white        weiß         weiß        animal thing panel
black        schwarz      schwarz     animal thing
red          rot          rot         thing panel
new          neu          neu         thing panel
beautiful    schön        schön       thing place
expensive    teuer        teur        thing
cheap        billig       billig      thing
heavy        schwer       schwer      luggage
dirty        schmutzig    schmutzig   panel room washable
clean        sauber       sauber      panel room clothing
fresh        frisch       frisch      food
good         gut          gut         food readable
delicious    lecker       lecker      food
cold         kalt         kalt        served
hot          heiß         heiß        hot
interesting  interessant  interessant readable
boring       langweilig   langweilig  readable
quiet        ruhig        ruhig       place
dark         dunkel       dunkl       room nature
""".splitlines()
]

VERBS = [
    _verb(line)
    for line in """\
eat ate            | essen isst hat gegessen            | person       | acc    | food          | home
eat ate            | fressen frisst hat gefressen       | animal       | acc    | fodder        | home
drink drank        | trinken trinkt hat getrunken       | person       | acc    | drink         | home
drink drank        | trinken trinkt hat getrunken       | animal       | acc    | plain         | home
buy bought         | kaufen kauft hat gekauft           | person       | acc    | food thing    | market
read read          | lesen liest hat gelesen            | person       | acc    | readable      | home nature
write wrote        | schreiben schreibt hat geschrieben | person       | acc    | written       | home
see saw            | sehen sieht hat gesehen            | person animal| acc    | person animal | nature
look looked for    | suchen sucht hat gesucht           | person       | acc    | person thing  | town nature
find found         | finden findet hat gefunden         | person       | acc    | thing         | home nature
love loved         | lieben liebt hat geliebt           | person       | acc    | person animal | state
know knew          | kennen kennt hat gekannt           | person       | acc    | person        | state
need needed        | brauchen braucht hat gebraucht     | person       | acc    | thing         | state
have had           | haben hat hat gehabt               | person       | acc    | thing animal  | state
visit visited      | besuchen besucht hat besucht       | person       | acc    | person        | town
wash washed        | waschen wäscht hat gewaschen       | person       | acc    | washable      | home
carry carried      | tragen trägt hat getragen          | person       | acc    | luggage       |
repair repaired    | reparieren repariert hat repariert | person       | acc    | machine       | home
bake baked         | backen backt hat gebacken          | person       | acc    | baked         | home
cook cooked        | kochen kocht hat gekocht           | person       | acc    | cooked        | home
feed fed           | füttern füttert hat gefüttert      | person       | acc    | animal        | nature
clean cleaned      | putzen putzt hat geputzt           | person       | acc    | cleaned       |
call called        | an+rufen ruft hat gerufen          | person       | acc    | person        |
invite invited     | ein+laden lädt hat geladen         | person       | acc    | person        |
open opened        | auf+machen macht hat gemacht       | person       | acc    | openable      |
close closed       | zu+machen macht hat gemacht        | person       | acc    | openable      |
switch switched on | an+machen macht hat gemacht        | person       | acc    | switch        |
switch switched off| aus+machen macht hat gemacht       | person       | acc    | switch        |
tidy tidied up     | auf+räumen räumt hat geräumt       | person       | acc    | home          |
put put on         | an+ziehen zieht hat gezogen        | person       | acc    | clothing      |
bring brought along| mit+bringen bringt hat gebracht    | person       | acc    | gift          |
help helped        | helfen hilft hat geholfen          | person       | dat    | person        | home town
answer answered    | antworten antwortet hat geantwortet| person       | dat    | person        |
follow followed    | folgen folgt ist gefolgt           | person animal| dat    | person animal |
listen listened to | zu+hören hört hat gehört           | person       | dat    | person        |
belong belonged to | gehören gehört hat gehört          | thing        | dat    | person        | state
give gave          | geben gibt hat gegeben             | person       | dat+acc| gift drink    |
show showed        | zeigen zeigt hat gezeigt           | person       | dat+acc| thing place   |
send sent          | schicken schickt hat geschickt     | person       | dat+acc| mail          |
lend lent          | leihen leiht hat geliehen          | person       | dat+acc| thing         |
offer offered      | an+bieten bietet hat geboten       | person       | dat+acc| food drink    |
wait waited for    | warten wartet hat gewartet         | person       | auf acc| person        | town nature
talk talked to     | sprechen spricht hat gesprochen    | person       | mit dat| person        | town nature
play played with   | spielen spielt hat gespielt        | person       | mit dat| person playful| home nature
think thought of   | denken denkt hat gedacht           | person       | an acc | person animal |
live lived in      | wohnen wohnt hat gewohnt           | person       | in dat | dwelling      | state
go went to         | gehen geht ist gegangen            | person       | in acc | town nature   |
run ran into       | laufen läuft ist gelaufen          | person animal| in acc | home nature   |
arrive arrived in  | an+kommen kommt ist gekommen       | person       | in dat | market nature |
sleep slept        | schlafen schläft hat geschlafen    | person animal|        |               | home nature
work worked        | arbeiten arbeitet hat gearbeitet   | person       |        |               | home town
dance danced       | tanzen tanzt hat getanzt           | person       |        |               | town nature
sing sang          | singen singt hat gesungen          | person       |        |               | town nature
get got up         | auf+stehen steht ist gestanden     | person animal|        |               |
fall fell asleep   | ein+schlafen schläft ist geschlafen| person animal|        |               | home nature
run ran away       | weg+laufen läuft ist gelaufen      | person animal|        |               |
""".splitlines()
]

COPULA = _verb("be was | sein ist ist gewesen | | | |")
SAY = _verb("say said | sagen sagt hat gesagt | person | | |")
THINK = _verb("think thought | glauben glaubt hat geglaubt | person | | |")
KNOW = _verb("know knew | wissen weiß hat gewusst | person | | |")
HEAR = _verb("hear heard | hören hört hat gehört | person | | |")
ASK = _verb("ask asked | fragen fragt hat gefragt | person | | |")
TRY = _verb("try tried | versuchen versucht hat versucht | person | | |")
PROMISE = _verb("promise promised | versprechen verspricht hat versprochen | person | | |")
FORGET = _verb("forget forgot | vergessen vergisst hat vergessen | person | | |")

TIMES = [
    Adverb(*_cells(line))
    for line in """\
every day      | jeden Tag     | frequency
often          | oft           | mid
always         | immer         | mid
sometimes      | manchmal      | mid
in the morning | am Morgen     | present
in the evening | am Abend      | present
on Sundays     | sonntags      | present
in summer      | im Sommer     | present
yesterday      | gestern       | past
this morning   | heute Morgen  | past
on Monday      | am Montag     | past
last week      | letzte Woche  | past
today          | heute         | modal
tomorrow       | morgen        | modal
tonight        | heute Abend   | modal
next week      | nächste Woche | modal
""".splitlines()
]

PLACES = [
    Adverb(*_cells(line))
    for line in """\
here    | hier     | home town market nature
there   | dort     | home town market nature
outside | draußen  | home nature
at home | zu Hause | home
""".splitlines()
]
