"""The stage that writes a negative caption for a row's keyword, checks it, and retries rejected ones.

A row's negative caption depends on its caption, keyword, category and tag, the seed and the settings, but not on other
rows, shards or processes. Answers of a language model are stored by the content of their request
(`writers.answer_cache`), so a resumed build has the same bytes even if the model samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from hfcomp.checksums import file_hash
from hfcomp.data.negatives import RATED_WORDS
from hfcomp.factory.builder import DROPPED, FLAGGED, MADE
from hfcomp.factory.concretebatch.options import ConcreteBatchOptions
from hfcomp.factory.shards import COUNTS, SET_ASIDE, THIS_RUN, Batch, Stage, this_run
from hfcomp.factory.sources import model_facts
from hfcomp.factory.substitutes.choice import substitutes
from hfcomp.factory.substitutes.lexicon import DEFAULT_LEXICON
from hfcomp.factory.targets.choice import Mode
from hfcomp.factory.writers.changes import KIND_OF_CATEGORY, Change, check_neighbors, replaced_keyword
from hfcomp.factory.writers.llm_client import LlmClient, Question, build_llm_client, retry_refused, writer_facts
from hfcomp.factory.writers.prompts import KEYWORD_FILE, keyword_prompt
from hfcomp.factory.writers.requests import Refused
from hfcomp.negatives.filters import GRAMMAR, GrammarFilter, is_same_sentence
from hfcomp.negatives.negative import Negative, as_columns
from hfcomp.negatives.surface import rewrite
from hfcomp.parsing.captions import caption_problem

# Columns of the source that the stage sees.
READS = ("caption", "keyword", "keyword_span", "category", "keyword_tag", "rated_word")
NO_CAPTION = "no negative caption"
NO_TARGET, BAD_TARGET, NO_MORE = "no keyword", "keyword is not at its span", "no more substitutes"
AGREED = FLAGGED("another word made to agree")
FALLBACK = FLAGGED("a word of no group, replaced by one for its tag")


@dataclass(frozen=True)
class Target:
    """The word to change in a caption.

    Attributes:
        span: Position of the keyword, `[start, end)` in characters.
        tag: Penn tag of the keyword's last word.
        category: `attribute`, `object` or `relation`.
    """

    caption: str
    span: tuple[int, int]
    tag: str
    category: str


Proposal = Change | Refused


class _Proposer(Protocol):
    counts: Mapping[str, int]
    """Number of answers of a language model so far."""

    def propose(self, targets: Sequence[Target], attempt: int) -> list[Proposal]:
        """An attempt at each target."""
        ...


class _Prompted:
    """Proposes answers of a language model to the paper's prompt."""

    def __init__(self, client: LlmClient, mode: Mode, seed: int) -> None:
        self._client, self._mode, self._seed = client, mode, seed

    @property
    def counts(self) -> Counter[str]:
        return self._client.counts

    def propose(self, targets: Sequence[Target], attempt: int) -> list[Proposal]:
        questions = [self._question(target, attempt) for target in targets]
        parts = [(target.caption, target.span, target.tag, target.category) for target in targets]
        return self._client.answers(questions, self._seed, lambda n, answer: replaced_keyword(*parts[n], answer))

    def _question(self, target: Target, attempt: int) -> Question:
        keyword = target.caption[slice(*target.span)]
        examples = "random" if self._mode == "random" else target.category
        purpose = ("keyword", f"{target.span[0]}-{target.span[1]}", examples)
        return Question(keyword_prompt(target.caption, keyword, examples), target.caption, purpose, attempt)


class _Substituted:
    """Proposes substitutes from the lexicon, without a model."""

    counts: ClassVar[Mapping[str, int]] = {}

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, targets: Sequence[Target], attempt: int) -> list[Proposal]:
        return [self._proposal(target, attempt) for target in targets]

    def _proposal(self, target: Target, attempt: int) -> Proposal:
        caption, span = target.caption, target.span
        choices = substitutes(caption, span, target.tag, seed=self._seed)
        # The n-th attempt takes the n-th substitute.
        if isinstance(choices, str) or attempt >= len(choices):
            return Refused(choices if isinstance(choices, str) else NO_MORE)
        chosen = choices[attempt]
        text = rewrite(caption, [chosen.span], [chosen.text])
        try:
            check_neighbors(caption, text)
        except Refused as reason:
            return reason
        if is_same_sentence(caption, text):
            return Refused(NO_MORE)
        kind, keyword = KIND_OF_CATEGORY[target.category], caption[slice(*chosen.span)]
        negative = Negative(text, kind, keyword, chosen.text, target.category, (chosen.span,))
        return Change(negative, 0, is_fallback=chosen.is_fallback)


def make_negative_captions(
    *,
    mode: Mode,
    seed: int,
    attempts: int,
    writer: Mapping[str, Any],
    grammar_model: str | None = None,
    grammar_tolerance: float | None = None,
    device: str | None = None,
) -> Callable[[Batch], Batch]:
    """The stage that adds the negative columns. Rows without a valid caption are set aside with the last reason.

    Args:
        mode: Rule by which keywords were chosen; `random` uses the paper's fourth set of examples.
        writer: Settings of `build_llm_client`. Its `writer` may also be `substitute`.
    """
    proposer: _Proposer
    if writer["writer"] == "substitute":
        proposer = _Substituted(seed)
    else:
        proposer = _Prompted(build_llm_client(**writer, device=device), mode, seed)
    tolerance = {} if grammar_tolerance is None else {"tolerance": grammar_tolerance}
    judge = GrammarFilter(grammar_model, device=device, **tolerance) if grammar_model else None

    def negative_captions(batch: Batch) -> Batch:
        before = proposer.counts
        result = batch | _write_captions(batch, proposer, judge, attempts)
        return result | {THIS_RUN: this_run(proposer.counts, before, len(result[COUNTS]))}

    return negative_captions


def caption_stage(options: ConcreteBatchOptions, mode: Mode) -> Stage:
    facts: dict[str, Any] = {"mode": mode, "seed": options.seed, "attempts": options.attempts}
    names = ("device", "grammar_model", "grammar_tolerance")
    settings = facts | {"writer": options.writer_settings()} | {name: getattr(options, name) for name in names}
    if options.writer == "substitute":
        facts |= {"writer": "substitute", "lexicon": f"{DEFAULT_LEXICON.name} sha256:{file_hash(DEFAULT_LEXICON)}"}
    else:
        facts |= writer_facts(settings["writer"], KEYWORD_FILE)
    if options.grammar_model:
        facts["grammar_model"] = model_facts(options.grammar_model)
        facts["grammar_tolerance"] = options.grammar_tolerance
    return Stage("negative captions", make_negative_captions, settings, facts)


def _write_captions(batch: Batch, proposer: _Proposer, judge: GrammarFilter | None, attempts: int) -> Batch:
    """The columns to add, with counts by reason."""
    targets = [_target(*values) for values in zip(*(batch[name] for name in READS[:-1]), strict=True)]
    counts: list[Counter[str]] = [Counter() for _ in targets]
    last = [target if isinstance(target, str) else NO_CAPTION for target in targets]
    valid = {place: target for place, target in enumerate(targets) if isinstance(target, Target)}
    places, valid_targets = list(valid), list(valid.values())

    def ask(left: list[int], attempt: int) -> list[Proposal]:
        open_targets = [valid_targets[number] for number in left]
        return _reject_ungrammatical(open_targets, proposer.propose(open_targets, attempt), judge)

    # Each attempt covers all remaining captions, so a server gets many requests at once.
    usable, refused = retry_refused(len(valid_targets), attempts, ask)
    changes = {places[number]: change for number, change in sorted(usable.items())}
    for place, reasons in zip(places, refused, strict=True):
        counts[place].update(DROPPED(str(reason).partition(":")[0]) for reason in reasons)
        last[place] = f"{NO_CAPTION}, {reasons[-1]}" if reasons else last[place]
    for place, change in changes.items():
        counts[place].update({MADE(change.negative.kind): 1} | ({AGREED: 1} if change.agreements else {}))
        counts[place].update({FALLBACK: 1} if change.is_fallback else {})
    rows = [[changes[place].negative] if place in changes else [] for place in range(len(targets))]
    # The rating of "brick" does not apply to "brick building": if a compound was replaced, no rated word is written.
    return as_columns(rows, 1) | {
        RATED_WORDS: [
            [word if word and not (place in changes and _is_half(targets[place], changes[place])) else ""]
            for place, word in enumerate(batch[READS[-1]])
        ],
        SET_ASIDE: [None if place in changes else reason for place, reason in enumerate(last)],
        COUNTS: counts,
    }


def _is_half(target: Target | str, change: Change) -> bool:
    """Whether the rated word is only the first half of the replaced compound, such as "brick building"."""
    return isinstance(target, Target) and target.category == "object" and change.negative.spans[0][1] > target.span[1]


def _reject_ungrammatical(
    targets: Sequence[Target], proposals: Sequence[Proposal], judge: GrammarFilter | None
) -> list[Proposal]:
    """Rejects proposals that a language model finds broken while it accepts their captions."""
    if judge is None:
        return list(proposals)
    good = [place for place, proposal in enumerate(proposals) if isinstance(proposal, Change)]
    texts = [proposal.negative.text for proposal in proposals if isinstance(proposal, Change)]
    broken = dict(zip(good, judge.breaks([targets[place].caption for place in good], texts), strict=True))
    return [Refused(GRAMMAR) if broken.get(place) else proposal for place, proposal in enumerate(proposals)]


def _target(caption: Any, keyword: Any, span: Any, category: Any, tag: Any) -> Target | str:
    """A row's target, or the reason why it has none."""
    if not isinstance(caption, str) or caption_problem(caption) is not None:
        return "no caption"
    if not keyword or not span or len(span) != 2:
        return NO_TARGET
    # A row that was edited by hand may have a span that cuts into another word.
    if category not in KIND_OF_CATEGORY or caption[span[0] : span[1]] != keyword:
        return f"{BAD_TARGET}: {keyword!r}, {category!r}, {list(span)}"
    return Target(caption, (span[0], span[1]), tag or "", category)
