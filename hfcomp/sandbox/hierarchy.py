"""What scenes have in common: families of shapes and colors, four levels of abstraction, groups and their rivals."""

from itertools import product

from hfcomp.sandbox.scenes import COLORS, SHAPES, Scene, Thing

SHAPE_FAMILIES = {
    "round": ("circle", "ring"),
    "lobed": ("heart",),
    "cornered": ("square", "triangle", "diamond"),
    "spiky": ("cross", "star"),
}
OUTLINES = {"curved": ("round", "lobed"), "straight": ("cornered", "spiky")}
COLOR_FAMILIES = {"warm": ("red", "orange", "yellow", "pink"), "cool": ("green", "cyan", "blue", "purple")}
# Names of scenes with several families.
MIXED_SHAPES, MIXED_COLORS = "assorted", "motley"
NUMBERS = {1: "one", 2: "two", 3: "three"}
FIGURE_WORDS = (
    *SHAPE_FAMILIES,
    *OUTLINES,
    *COLOR_FAMILIES,
    MIXED_SHAPES,
    MIXED_COLORS,
    *NUMBERS.values(),
    "figure",
    "figures",
)
LEVELS = (1, 2, 3, 4)

_FAMILY_OF_SHAPE = {shape: family for family, shapes in SHAPE_FAMILIES.items() for shape in shapes}
_FAMILY_OF_COLOR = {color: family for family, colors in COLOR_FAMILIES.items() for color in colors}
_OUTLINE_OF_FAMILY = {family: outline for outline, families in OUTLINES.items() for family in families}
if set(_FAMILY_OF_SHAPE) != set(SHAPES) or set(_FAMILY_OF_COLOR) != set(COLORS):
    raise RuntimeError("every shape and every color belongs to one family")


def generalized_words(thing: Thing) -> list[str]:
    """The families of a thing's color and shape, and "figure" or "figures"."""
    noun = "figure" if thing.count == 1 else "figures"
    return [_FAMILY_OF_COLOR[thing.color], _FAMILY_OF_SHAPE[thing.shape], noun]


def levels(scene: Scene) -> tuple[str, str, str, str]:
    """The names of the scene's concepts, from level 1 (the most specific) to level 4 (the most abstract).

    Level 4 says how many figures there are, level 3 adds whether their colors are warm, cool or both, level 2
    whether their outlines are curved, straight or both, level 1 puts the family of shapes in the outline's place.
    Every node has one parent, and all of it can be seen in the image.
    """
    shapes = {_FAMILY_OF_SHAPE[thing.shape] for thing in scene.things}
    colors = {_FAMILY_OF_COLOR[thing.color] for thing in scene.things}
    outlines = {_OUTLINE_OF_FAMILY[family] for family in shapes}
    shape = shapes.pop() if len(shapes) == 1 else MIXED_SHAPES
    outline = outlines.pop() if len(outlines) == 1 else MIXED_SHAPES
    color = colors.pop() if len(colors) == 1 else MIXED_COLORS
    # Within one outline, assorted families are a separate node.
    specific = f"{outline} {shape}" if shape == MIXED_SHAPES and outline != MIXED_SHAPES else shape
    return (
        _name(scene.objects, color, specific),
        _name(scene.objects, color, outline),
        _name(scene.objects, color),
        _name(scene.objects),
    )


def rival_groups(group: str) -> list[str]:
    """The level-1 concepts that are easily taken for another: one family exchanged, the number and the rest kept.

    Args:
        group: a level-1 name of `levels`.

    Returns:
        Level-1 names, in a fixed order, never `group` itself.
    """
    number, color, *shape, _ = group.split()
    counts = {name: count for count, name in NUMBERS.items()}
    several = number != NUMBERS[1]
    colors = [*COLOR_FAMILIES, *([MIXED_COLORS] if several else [])]
    own = " ".join(shape)
    shapes = dict.fromkeys([*SHAPE_FAMILIES, *([MIXED_SHAPES] if several else []), own])
    rivals = [pair for pair in product(colors, shapes) if (pair[0] == color) != (pair[1] == own)]
    # No two things share a shape, so a family of one shape is never motley.
    return [_name(counts[number], *rival) for rival in rivals if rival != (MIXED_COLORS, "lobed")]


def _name(objects: int, *adjectives: str) -> str:
    return " ".join([NUMBERS[objects], *adjectives, "figure" if objects == 1 else "figures"])
