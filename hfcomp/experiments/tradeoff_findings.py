"""What Rösch et al. 2024 found, as statements that a study can show, contradict or leave open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hfcomp.evaluation.statistics.summary import BASE
from hfcomp.experiments.plans import TradeoffPlan
from hfcomp.experiments.tradeoff_results import PLAIN, ConceptResults, Point, final

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


def findings(results: dict[str, ConceptResults], plan: TradeoffPlan) -> list[Finding]:
    """The paper's findings that the study has numbers for, concept by concept.

    Args:
        results: of `summarize_tradeoff`.
        plan: of the study.
    """
    return [finding for concept, found in results.items() for finding in _of_concept(concept, found, plan)]


def _of_concept(concept: str, results: ConceptResults, plan: TradeoffPlan) -> Iterator[Finding]:
    numbers = plan.concepts[concept]
    few, many = f"HN{numbers[0]}", f"HN{numbers[-1]}"
    trained, hard = final(results, PLAIN), final(results, few)
    base, ask = final(results, BASE), _Asked(concept, results)
    gains = PLAIN_GAINS.get(concept, "-")
    yield ask("retrieval", "plain training finds more images", RETRIEVAL_GAINS.get(concept, "-"), trained, base)
    if concept == "location":
        words = "plain training hardly helps (at most 5 points, our bound)"
        yield ask("accuracy", words, gains, trained, base, most=LOCATION_GAIN)
    else:
        yield ask("accuracy", "plain training helps", gains, trained, base)
    yield ask("accuracy", f"{few} helps beyond plain training", ACCURACY_GAINS.get(concept, "-"), hard, trained)
    words = f"{few} costs at most 4 points of plain training's retrieval"
    yield ask("retrieval", words, "-4 to 0", hard, trained, least=-RETRIEVAL_LOSS)
    first = Point(few, results.per_epoch)
    early = Point(few, results.per_epoch // plan.per_epoch)
    words = f"{few} helps after 1/{plan.per_epoch} of an epoch already"
    yield ask("accuracy", words, "Fig. 4", early, base)
    if hard.step > first.step:
        words = f"one epoch of {few} is enough (later ones add at most 2 points)"
        yield ask("accuracy", words, "0 to 2", hard, first, most=FURTHER_EPOCHS)
    if many != few:
        words = f"{many} adds at most 3 points to {few}"
        yield ask("accuracy", words, "1 to 3", final(results, many), hard, most=FURTHER_NEGATIVES)
    if "visual" in results.lines:
        words = f"{few} helps beyond plain training, seen from the images (Eq. 2)"
        yield ask("visual", words, VISUAL_GAINS.get(concept, "-"), hard, trained)
    for name in plan.further:
        if name in results.lines:
            yield ask(name, f"{few} helps beyond plain training on {name}", "Table 5", hard, trained)


@dataclass(frozen=True)
class _Asked:
    """Puts one statement to one concept's numbers."""

    concept: str
    results: ConceptResults

    def __call__(
        self,
        line: str,
        statement: str,
        paper: str,
        point: Point,
        reference: Point,
        *,
        least: float = 0.0,
        most: float | None = None,
    ) -> Finding:
        """`point` minus `reference` on a line is above `least`, or with `most` below it."""
        change = self.results.difference(line, point, reference)
        low, high = change["low"], change["high"]
        above, below = (low > least, high < least) if most is None else (high < most, low > most)
        verdict = SHOWN if above else OPPOSITE if below else OPEN
        return Finding(self.concept, statement, paper, change["value"], low, high, verdict)
