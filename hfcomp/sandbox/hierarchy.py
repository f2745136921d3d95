"""Hierarchy of scenes: families of shapes and colors, four levels of abstraction, groups and rival groups."""

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
# Names for scenes with several families.
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
    raise RuntimeError("every shape and every color must belong to exactly one family")


def generalized_words(thing: Thing) -> list[str]:
    """Returns the families of a thing's color and shape, and "figure" or "figures"."""
    noun = "figure" if thing.count == 1 else "figures"
    return [_FAMILY_OF_COLOR[thing.color], _FAMILY_OF_SHAPE[thing.shape], noun]


def levels(scene: Scene) -> tuple[str, str, str, str]:
    """Returns the names of the scene's concepts, from level 1 (the most specific) to level 4 (the most abstract).

    Level 4 is the number of figures. Level 3 adds whether their colors are warm, cool or both, and level 2 whether
    their outlines are curved, straight or both. Level 1 replaces the outline with the family of shapes. Every node has
    one parent, and everything it names is visible in the image.
    """
    shapes = {_FAMILY_OF_SHAPE[thing.shape] for thing in scene.things}
    colors = {_FAMILY_OF_COLOR[thing.color] for thing in scene.things}
    outlines = {_OUTLINE_OF_FAMILY[family] for family in shapes}
    shape = shapes.pop() if len(shapes) == 1 else MIXED_SHAPES
    outline = outlines.pop() if len(outlines) == 1 else MIXED_SHAPES
    color = colors.pop() if len(colors) == 1 else MIXED_COLORS
    # Assorted families within one outline form a separate node.
    specific = f"{outline} {shape}" if shape == MIXED_SHAPES and outline != MIXED_SHAPES else shape
    return (
        _name(scene.objects, color, specific),
        _name(scene.objects, color, outline),
        _name(scene.objects, color),
        _name(scene.objects),
    )


def rival_groups(group: str) -> list[str]:
    """Returns level-1 concepts that are easily confused with a group: one family differs, everything else is equal.

    Args:
        group: Level-1 name from `levels`.

    Returns:
        Level-1 names in a fixed order, without `group` itself.
    """
    number, color, *shape, _ = group.split()
    counts = {name: count for count, name in NUMBERS.items()}
    is_plural = number != NUMBERS[1]
    colors = [*COLOR_FAMILIES, *([MIXED_COLORS] if is_plural else [])]
    own = " ".join(shape)
    shapes = dict.fromkeys([*SHAPE_FAMILIES, *([MIXED_SHAPES] if is_plural else []), own])
    rivals = [pair for pair in product(colors, shapes) if (pair[0] == color) != (pair[1] == own)]
    # No two things share a shape, so a family with one shape is never motley.
    return [_name(counts[number], *rival) for rival in rivals if rival != (MIXED_COLORS, "lobed")]


def _name(objects: int, *adjectives: str) -> str:
    return " ".join([NUMBERS[objects], *adjectives, "figure" if objects == 1 else "figures"])
