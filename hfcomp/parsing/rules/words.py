"""Word lists of the rule-based parser, for caption words that a newspaper-trained tagger gets wrong, and lemmas."""

from __future__ import annotations

from functools import lru_cache

from hfcomp.parsing.words import COLORS, word_set

# "colorful" is tagged correctly anyway, and the metals may be nouns ("made of gold").
PLAIN_COLORS = COLORS - word_set("colorful gold golden silver")
# Verbs that are frequent in captions. A tagger trained on newspapers mistakes their -s forms for plurals.
CAPTION_VERBS = sorted(
    word_set(
        "appear balance bend board brush carry catch chase chew climb come compete cook cover cross cuddle cut "
        "display do drink drive eat enjoy extend fall feature feed fill fly gallop gather get give go graze greet "
        "grind hang have help hit hold include jump kick kiss kneel lay lead lean leap lick lie lift look make "
        "mingle move open overlook paddle pass perch perform pet play point pose practice prepare protest pull push "
        "race reach read rest return ride roam roll run sail see serve share show sit skate skateboard ski sleep "
        "slide smile sniff stand stare stretch surf swim swing take talk throw touch travel try turn use visit wade "
        "wait walk watch wear work"
    )
)
S_FORMS = frozenset(
    verb[:-1] + "ies"
    if verb.endswith("y") and verb[-2] not in "aeiou"
    else verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
    for verb in CAPTION_VERBS
)
BASE_FORMS = frozenset(CAPTION_VERBS)
# -ing words that name things, then -ing words that name the purpose of a thing ("dining table").
ING_NOUNS = word_set(
    "awning bedding being building carving ceiling clearing clothing covering crossing drawing dressing dwelling "
    "earring evening fencing filling flooring frosting gathering icing inning king landing lettering lighting "
    "lightning marking meeting morning molding offering opening outing painting paneling plumbing pudding railing "
    "ring seasoning setting serving shelving siding sling spring stocking string stuffing thing topping towing "
    "viking wedding wing wording writing"
)
ING_PURPOSES = word_set(
    "baking bathing boarding bowling changing cooking cutting dining dressing drinking driving fishing frying "
    "hiking hunting jumping landing living measuring mixing packing parking playing racing riding rocking sailing "
    "serving sewing shipping shopping sitting skating skiing sleeping snowboarding steering surfing swimming "
    "training wading waiting washing wrapping writing"
)
# -ing words that name a purpose even after a noun: "a glass dining table", but not "a man riding a bike".
ING_PURPOSES_AFTER_NOUNS = word_set(
    "bathing bowling cutting dining living parking shopping swimming training wading waiting"
)
PURPOSE_HEADS = word_set(
    "alley area bag bags bench bike bin board boards bowl boat boats cabinet car cars cart carts chair chairs "
    "competition competitions course cup cups dish dishes equipment event field game gear glass glasses gloves "
    "hall hill house knife lane line lot lots machine machines mall mat meter meters pan pans paper park pole "
    "poles pool pot race rack resort ring rink rod room rooms seat ship sign signs slope space spaces spoon spot "
    "store structure suit suits table tables tent tools track tray trunks trophy vest wheel"
)
# Past-tense forms of intransitive verbs, which are hardly ever participles.
INTRANSITIVE = word_set("climbed danced jumped looked rested skied smiled stared walked waited")
# Tags of words that have a different tag, or none, in the tagger's lexicon.
FIXED_TAGS = (
    dict.fromkeys(
        ("beside", "besides", "atop", "amongst", "amidst", "amid", "aboard", "alongside", "onto", "near"), "IN"
    )
    | dict.fromkeys(("underneath", "beneath", "upon", "inbetween", "towards", "toward", "w/", "among", "behind"), "IN")
    | dict.fromkeys(("who", "whom"), "WP")
    | dict.fromkeys(("a", "an", "the", "some", "another", "each", "every", "any", "no", "both", "all", "these"), "DT")
    | dict.fromkeys(("and", "or", "&", "but"), "CC")
    | dict.fromkeys(("many", "several", "various", "multiple", "few", "other", "cooked", "male", "female"), "JJ")
    | dict.fromkeys(("lots", "people", "sheep", "glasses", "others", "cattle", "bears", "tracks"), "NNS")
    | dict.fromkeys(("leaves", "mirrors", "sinks", "spreads"), "NNS")
    | dict.fromkeys(("something", "someone", "anything", "nothing", "everyone", "everything"), "NN")
    | dict.fromkeys(("broccoli", "couple", "stop", "bunch", "dozen", "bear", "monitor", "wear", "cell", "sink"), "NN")
    | dict.fromkeys(("moped", "sled"), "NN")
    | dict.fromkeys(("asleep", "awake", "upside", "full", "upright", "ready"), "JJ")
    | dict.fromkeys(("together", "outdoors", "indoors", "away", "alone", "nearby", "outside", "inside"), "RB")
    | dict.fromkeys(("is", "has", "does"), "VBZ")
    | dict.fromkeys(("are", "have", "do"), "VBP")
    | {"them": "PRP", "it": "PRP", "that": "IN", "which": "WDT", "her": "PRP$", "his": "PRP$", "its": "PRP$"}
    | {"cut": "VBN", "sat": "VBD", "set": "VBN", "made": "VBN", "being": "VBG", "while": "IN", "past": "IN"}
)
PARTICLES = word_set("up down off out over on around in by through along across about under")
QUANTITIES = word_set(
    "all array assortment both bunch couple crowd dozen dozens each few flock group groups herd line lot lots "
    "most number one pack pair pairs row rows series set some three trio two variety"
)
MEASURES = word_set(
    "array assortment bunch couple crowd dozen flock group herd lot lots number pack pair piece row series set "
    "slice trio two three four some variety"
)
PARTS_OF_THINGS = word_set("back bottom center edge end front middle side top")
ANIMATE = word_set(
    "adult animal baby batter bear bird boy bull cat catcher cattle child couple cow crowd dog duck elephant "
    "family female friend giraffe girl goat goose group guy herd horse kid kitten lady lamb male man men monkey "
    "mother officer people person pitcher player police polar pony puppy rider sheep skateboarder skier "
    "snowboarder soldier surfer team toddler umpire woman women worker zebra father student individual gentleman "
    "crew audience seagull pigeon teenager youth biker cyclist motorcyclist skater someone he she they"
)
ADVERBS_BEFORE_PREPOSITION = word_set("all directly halfway just partially partly right straight way")
ADVERBS_LIKE_PREPOSITIONS = word_set("next close far out away")
# Words before "to" that make the word after it a verb: "about to head down the slope".
BEFORE_INFINITIVES = word_set(
    "able about attempting attempts prepares preparing ready tries try trying wait waiting waits want wanting wants"
)
# Words that begin a clause with a verb of its own.
CLAUSE_WORDS = word_set("after as because before that when where which while who")
NOMINATIVES = frozenset({"he", "she", "they", "i", "we", "you", "it"})
# Lemmas that simplemma lacks, or that it returns for another sense of the word.
_IRREGULAR = {
    ("people", "NNS"): "people",
    ("'s", "VBZ"): "be",
    ("'re", "VBP"): "be",
    ("'m", "VBP"): "be",
    ("'ve", "VBP"): "have",
    ("'ll", "MD"): "will",
    ("n't", "RB"): "not",
    ("left", "VBD"): "leave",
    ("left", "VBN"): "leave",
    ("lay", "VBD"): "lie",
    ("saw", "VBD"): "see",
    ("fell", "VBD"): "fall",
    ("found", "VBD"): "find",
    ("found", "VBN"): "find",
    ("glasses", "NNS"): "glass",
    ("poles", "NNS"): "pole",  # simplemma returns "poles"
    ("playing", "VBG"): "play",
    ("me", "PRP"): "I",
    ("him", "PRP"): "he",
    ("them", "PRP"): "they",
    ("us", "PRP"): "we",
}
_INFLECTED = frozenset({"NNS", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "MD", "JJR", "JJS", "RBR", "RBS"})


@lru_cache(maxsize=65536)
def lemma(word: str, tag: str) -> str:
    """Returns the lemma of a word with a Penn tag, in lower case; proper nouns are returned unchanged.

    A noun ending in -ing stays unchanged, but a verb form ending in -ing does not.
    """
    if tag in ("NNP", "NNPS") or not word:
        return word
    lower = word.lower()
    if (lower, tag) in _IRREGULAR:
        return _IRREGULAR[lower, tag]
    # Do not look up a word whose tag marks a base form: "saw" as a noun would become "see".
    if tag not in _INFLECTED:
        return lower
    import simplemma

    form = simplemma.lemmatize(lower, lang="en").lower()
    if form == lower and tag == "VBG" and lower.endswith("ing"):
        return _without_ing(lower)
    return form


def _without_ing(word: str) -> str:
    """Returns the verb of an -ing form that the dictionary lists as a noun ("sitting", "building") or not at all."""
    import simplemma

    # Undo the spelling rules: "sitting" drops the doubled letter. For "baking", removing -ing would give "bak", but
    # "baked" leads to "bake".
    stem = word[:-3]
    if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsz":
        return stem[:-1]
    for candidate in (stem + "ed", stem + "s", stem + "es"):
        if (form := simplemma.lemmatize(candidate, lang="en")) != candidate:
            return form.lower()
    return stem or word
