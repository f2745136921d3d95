"""What Rösch et al. 2024 found, as statements that a study can show, contradict or leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hfcomp.statistics.summary import BASE

PLAIN = "plain"
SHOWN, OPPOSITE, OPEN = "shown", "the opposite is shown", "open"
# The largest losses and gains of the paper's Table 3, in points: what "hardly" and "enough" mean here.
RETRIEVAL_LOSS = 0.04
FURTHER_NEGATIVES = 0.03
FURTHER_EPOCHS = 0.02
LOCATION_GAIN = 0.05
VISUAL_GAINS = {"object": "1 to 3", "color": "6 to 7", "size": "28 to 30"}
ACCURACY_GAINS = {"object": "7 to 8", "color": "11 to 13", "location": "29 to 30", "size": "13 to 16"}
PLAIN_GAINS = {"object": "20", "color": "21 to 23", "location": "1 to 4", "size": "5 to 8"}
RETRIEVAL_GAINS = {"object": "15 to 16", "color": "11", "location": "12", "size": "11 to 12"}


@dataclass(frozen=True)
class Finding:
    """A statement of the paper and what the study says of it.

    Attributes:
        concept: that it is of.
        statement: in words.
        paper: the paper's numbers, in points.
        value: the difference here, with its interval `low` to `high`, 0 to 1.
        low: lower end.
        high: upper end.
        verdict: `SHOWN` where the whole interval is on the statement's side of its threshold, `OPPOSITE` where it is
            on the other, else `OPEN`.
    """

    concept: str
    statement: str
    paper: str
    value: float
    low: float
    high: float
    verdict: str


Line = Mapping[str, Any]
Point = tuple[str, int]


def concept_findings(
    concept: str,
    lines: Mapping[str, Line],
    *,
    numbers: Sequence[int],
    every: int,
    per_epoch: int,
    last: int,
    further: Sequence[str] = (),
) -> list[Finding]:
    """The paper's findings that a study has numbers for.

    Args:
        concept: the study is of.
        lines: `accuracy`, `retrieval`, and where there are such `visual` and `further` ones, of `summarize` with
            contrasts of points: pairs of a run (`base`, `plain`, `HN1` and so on) and a step.
        numbers: of hard negatives, rising.
        every: steps between checkpoints.
        per_epoch: steps of an epoch.
        last: the last step.
        further: names of further lines.
    """
    few, many = f"HN{numbers[0]}", f"HN{numbers[-1]}"
    base, trained, hard = (BASE, 0), (PLAIN, last), (few, last)
    finding, gains = partial(_finding, concept, lines), PLAIN_GAINS.get(concept, "-")
    plain, bound = "plain training helps", None
    if concept == "location":
        plain, bound = "plain training hardly helps (at most 5 points, our bound)", LOCATION_GAIN
    found = [
        finding("retrieval", "plain training finds more images", RETRIEVAL_GAINS.get(concept, "-"), trained, base),
        finding("accuracy", plain, gains, trained, base, most=bound),
        finding("accuracy", f"{few} helps beyond plain training", ACCURACY_GAINS.get(concept, "-"), hard, trained),
    ]
    words = f"{few} costs at most 4 points of plain training's retrieval"
    found.append(finding("retrieval", words, "-4 to 0", hard, trained, least=-RETRIEVAL_LOSS))
    words = f"{few} helps after 1/{per_epoch // every} of an epoch already"
    found.append(finding("accuracy", words, "Fig. 4", (few, every), base))
    if last > per_epoch:
        words = f"one epoch of {few} is enough (later ones add at most 2 points)"
        found.append(finding("accuracy", words, "0 to 2", hard, (few, per_epoch), most=FURTHER_EPOCHS))
    if many != few:
        words = f"{many} adds at most 3 points to {few}"
        found.append(finding("accuracy", words, "1 to 3", (many, last), hard, most=FURTHER_NEGATIVES))
    if "visual" in lines:
        words = f"{few} helps beyond plain training, seen from the images (Eq. 2)"
        found.append(finding("visual", words, VISUAL_GAINS.get(concept, "-"), hard, trained))
    beyond = f"{few} helps beyond plain training on"
    return found + [finding(name, f"{beyond} {name}", "Table 5", hard, trained) for name in further if name in lines]


def _finding(
    concept: str,
    lines: Mapping[str, Line],
    line: str,
    statement: str,
    paper: str,
    point: Point,
    reference: Point,
    *,
    least: float = 0.0,
    most: float | None = None,
) -> Finding:
    """That `point` minus `reference` on a line is above `least`, or with `most` below it."""
    change = lines[line]["contrasts"][point, reference]
    low, high = change["low"], change["high"]
    above, below = (low > least, high < least) if most is None else (high < most, low > most)
    verdict = SHOWN if above else OPPOSITE if below else OPEN
    return Finding(concept, statement, paper, change["value"], low, high, verdict)
