"""Words of captions that generators and noun phrases treat specially: small lists, made by hand from COCO captions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def phrase_set(text: str) -> frozenset[tuple[str, ...]]:
    """Splits a comma-separated text into phrases, each a tuple of its words."""
    return frozenset(tuple(phrase.split()) for phrase in text.split(","))


# Parts of a preposition rather than things in the image: "in front of", "the middle of", "to the left".
LOCATION_NOUNS = word_set(
    "back backdrop background base bottom center centre corner distance edge end foreground front inside left line "
    "middle outside rear right row side top way direction day evening moment morning night time"
)
# Words about the image rather than in it: "a photo of a dog".
PICTURE_NOUNS = word_set(
    "angle close-up closeup drawing illustration image painting photo photograph picture portrait scene shot view"
)
# Words for a thing named elsewhere, or for nothing visible.
EMPTY_NOUNS = word_set("one other another something someone thing stuff each many")

# Nouns that do not take "a"; only those that are frequent in captions.
MASS_NOUNS = word_set(
    "air baggage bacon bread broccoli butter cereal cheese chicken clothing coffee corn dirt equipment fabric fog "
    "food foliage fruit furniture garbage grass gravel hair hay ice jewelry juice ketchup lettuce luggage meat "
    "metal milk mud mustard paper pasta plastic produce rain rice salt sand seafood silverware snow soup steam "
    "sugar surf tea ground shade shrubbery sky traffic trash vegetation water wine wood wool work"
)

COLORS = word_set(
    "beige black blue brown colorful cyan gold golden gray green grey magenta maroon orange pink purple red silver "
    "tan teal turquoise violet white yellow"
)
SHADES = word_set("bright dark deep light pale")
SIZES = word_set("big enormous giant gigantic huge large little long medium short small tall tiny")

# Adjectives that count, compare or point. Swapping them does not make a caption false: "a same dog and two red balls".
NOT_DESCRIBING = word_set(
    "able adjacent adjoining available back bottom central certain close colored different eastern else entire far "
    "few first front full half last left main many middle more most much multiple near nearby nearest next numerous "
    "only opposite other own particular possible ready right same second separate several similar single some such "
    "third top total various very visible whole"
)

# Quantities so vague that "a group of people beside bags" and "a group of bags beside people" hardly differ.
VAGUE_QUANTITIES = word_set(
    "array assortment bunch couple few group lot lots many multiple number numerous plenty several some variety "
    "various"
)

# Pairs of adjective and noun that together name one thing.
FIXED_PAIRS = phrase_set(
    "bald eagle,brussel sprout,brussels sprout,french fry,french toast,fried rice,grizzly bear,green bean,"
    "high chair,hot dog,hot sauce,hot tub,living room,mashed potato,mobile phone,open air,orange juice,polar bear,"
    "potted plant,remote control,public transit,red light,skate park,stuffed animal,stuffed bear,sweet potato,"
    "white house,wild animal"
)

_GROWN_UPS = "man woman guy lady gentleman adult male female father mother dad mom"
_YOUNG = "boy girl child kid toddler baby"
_ROLES = (
    "athlete batter biker bicyclist catcher chef cook crowd customer cyclist driver family farmer friend group human "
    "individual motorcyclist pedestrian people person passenger player rider skateboarder skater skier snowboarder "
    "someone spectator student surfer swimmer team walker worker"
)
# Pairs of sets: a word on the left may name the same thing as any word on the right. Groups of kinds ("animal", "dog")
# are not transitive: "dog" and "cat" are both animals, but never the same thing.
_MAY_BE_ONE = tuple(
    (word_set(left), word_set(right))
    for left, right in (
        (_ROLES, f"{_ROLES} {_GROWN_UPS} {_YOUNG}"),
        ("adult", _GROWN_UPS),
        ("man guy gentleman male father dad", "man guy gentleman male father dad"),
        ("woman lady female mother mom", "woman lady female mother mom girl"),
        ("child kid toddler baby", _YOUNG),
        ("animal creature pet", "animal creature pet bear bird cat cow dog elephant giraffe horse sheep zebra"),
        ("vehicle", "vehicle car truck bus van motorcycle motorbike bike taxi"),
        ("motorcycle motorbike bike bicycle scooter moped", "motorcycle motorbike bike bicycle scooter moped"),
        ("car truck van taxi", "car truck van taxi"),
        *(
            (group, group)
            for group in (
                "airplane aeroplane aircraft jet plane airliner",
                "boat ship vessel",
                "couch sofa loveseat",
                "television tv monitor screen",
                "refrigerator fridge",
                "oven stove",
                "desk table counter countertop",
                "dish plate",
                "field grass grassland lawn meadow pasture park",
                "road street highway",
                "beach sand shore coast",
                "ocean sea water wave lake",
                "hill mountain slope snow hillside",
                "building house tower",
                "food meal",
                "doughnut donut pastry",
                "picture photo painting",
                "big enormous giant gigantic huge large",
                "little small tiny young",
                "gray grey silver",
                "gold golden yellow",
                "cute pretty beautiful nice lovely",
                "look stare gaze watch",
                "sit seat rest lay lie",
                "stand pose",
                "hold carry",
                "ride drive",
                "walk stroll",
                "eat chew",
            )
        ),
    )
)


def _both_ways() -> dict[str, frozenset[str]]:
    table: dict[str, frozenset[str]] = {}
    for words, others in _MAY_BE_ONE:
        for left, right in ((words, others), (others, words)):
            table.update({word: table.get(word, frozenset()) | right for word in left})
    return table


# Maps a word to the words that may name the same thing. Swapping these may leave a caption true: "man" and "person",
# but not "man" and "woman" or "cat" and "dog".
MAY_BE_ONE = _both_ways()

# If A "is", "sits" or "is parked" next to B, then B is also next to A.
POSTURES = word_set("be hang lay lean lie park perch pose rest seat sit stand")
# "A kisses B" hardly differs from "B kisses A".
MUTUAL_VERBS = word_set("embrace face fight hug kiss match meet resemble touch")
TALKING_VERBS = word_set("chat speak talk")
SYMMETRIC_RELATIONS = phrase_set(
    "next to,right next to,beside,besides,near,nearby,by,with,along with,alongside,together with,close to,"
    "adjacent to,in addition to,across from,opposite,as well as,plus,and,or,nor,and also,then,&,like,as"
)

# Words that refer to what follows "of": "a group of people" is people, "two slices of pizza" is pizza. Containers are
# not included: "a vase of flowers" shows a vase and flowers.
MEASURES = word_set(
    "amount array assortment batch bit block body bunch bundle chunk clump cluster collection couple crowd dozen "
    "ear family flight flock form game group half handful head heap herd hundred kind line lineup load loaf lot "
    "mix mixture mode mound number pack pair piece pile portion quarter row scoop section selection series set "
    "sheet slab slice sort stack strip swarm team thousand trio type variety"
)
# A noun before these words describes, as in "snow covered ground", which a parser may read as covered snow.
COVERINGS = word_set("capped coated covered crusted dusted filled frosted infested lined strewn topped")
# Words that express absence: "empty of people".
LACKING = word_set("bare devoid empty free lack")


@dataclass(frozen=True)
class ExcludedWords:
    """Nouns whose phrases are not concepts, as dictionary forms in lower case. The field name gives the reason.

    The paper lists no such words. The prompt of the released code excludes generic places ("home or street or
    school"). Change a field with `dataclasses.replace`; an empty set keeps all nouns of that kind.

    Attributes:
        picture: The picture itself instead of its content: "a photo" in "a photo of a dog", "the background". Plurals
            are things ("pictures on a wall") unless "of" follows.
        region: Part of the picture or of a thing, or a location: "the left side", "front", "a row". Kept as the last
            word of a compound: "a tank top", "a street corner", "a city scene".
        place: Place that is uninformative without a distinguishing word; kept with one: "a snowy street", "a hotel
            room".
        time: Time, which nobody could point at: "a sunny day".
        empty: Word for a thing named elsewhere or for nothing visible: "others", "fun".
    """

    picture: frozenset[str] = word_set(
        "angle backdrop background closeup close-up foreground image photo photograph photography pic picture shot "
        "snapshot view"
    )
    region: frozenset[str] = word_set(
        "back base bottom center centre corner direction distance edge end exterior front inside interior left line "
        "middle outside part portion rear rest right row scene side tip top way"
    )
    place: frozenset[str] = word_set("area city home location place room school setting street town world")
    time: frozenset[str] = word_set(
        "afternoon day daytime dusk evening hour minute moment morning night nighttime noon season time year"
    )
    empty: frozenset[str] = word_set(
        "action another anything fun half motion nothing one order other others something stuff thing"
    )

    @cached_property
    def all(self) -> frozenset[str]:
        return self.picture | self.region | self.place | self.time | self.empty


EXCLUDED_WORDS = ExcludedWords()
