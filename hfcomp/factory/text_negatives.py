"""Stages that add hard negatives to captions.

They take texts from several generators in turn, filter them, and count dropped texts. A caption's negatives depend on
the caption, the seed and the settings, but not on other rows, their order, shards or processes. With a smaller
`num_negatives`, a caption gets the first of the negatives that it would get with a larger one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from hfcomp.data.pair_table import texts_of
from hfcomp.factory.builder import ANSWERS, CAPTIONS, DROPPED, FLAGGED, MADE
from hfcomp.factory.kinds import FILLS, NO_NEGATIVE, WITHOUT
from hfcomp.factory.round_robin import Proposals, Row
from hfcomp.factory.shards import COUNTS, SET_ASIDE, THIS_RUN, Batch, this_run
from hfcomp.negatives.filters import DUPLICATE, GRAMMAR, SAME_SENTENCE, SAME_WORDS, has_same_words, is_same_sentence
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, KeywordTable, keyword_negatives, read_keyword_table
from hfcomp.negatives.negative import Negative, as_columns
from hfcomp.parsing import cached_parser
from hfcomp.parsing.captions import caption_problem
from hfcomp.parsing.tokens import CaptionChoice, choose_texts
from hfcomp.reading import nearest

GENERATORS = ("keyword", "swap", "mask", "llm")
SWAP_RULES = ("guarded", "plain")
NO_CAPTION = "no caption"
SKIPPED = CAPTIONS("passed over, ")
TOO_FEW = CAPTIONS("with fewer than requested")
SAME_WORDS_LABEL = FLAGGED("the caption's words in another order")

# Takes a batch, positions of rows in it, and a text for each position. Returns each text's reason to drop it, or None.
Check = Callable[[Batch, Sequence[int], Sequence[str]], list[str | None]]


def make_captions(*, which: CaptionChoice) -> Callable[[Batch], Batch]:
    """The stage that makes `caption` one text per row.

    Rows without a text, and rows whose text is too long or not valid Unicode, are set aside.

    Args:
        which: Choice among the captions of a row, see `choose_texts`. Skipped captions are counted.
    """
    if which not in get_args(CaptionChoice):
        raise ValueError(f"captions: found {which!r}, expected one of {', '.join(get_args(CaptionChoice))}.")

    def captions(batch: Batch) -> Batch:
        places, texts, reasons, counts = [], [], [], []
        for place, value in enumerate(batch["caption"]):
            usable = texts_of(value)
            chosen, problems = choose_texts(usable, which) if usable else ([""], [])
            skipped = Counter(problem.partition(":")[0] for problem in problems)
            for text in chosen:
                counts.append({f"{SKIPPED}{problem}": number for problem, number in skipped.items()})
                places.append(place)
                texts.append(text)
                reasons.append(caption_problem(text) if text else NO_CAPTION)
        # A row is repeated for each of its texts.
        columns = {name: [values[place] for place in places] for name, values in batch.items()}
        return columns | {"caption": texts, SET_ASIDE: reasons, COUNTS: counts}

    return captions


def check_kinds(kinds: Sequence[str], table: KeywordTable = PAPER_TABLE) -> None:
    """Raises ValueError for unknown or repeated kinds."""
    if isinstance(kinds, str) or not kinds:
        raise ValueError(f"kinds: found {kinds!r}, expected a list of one or more of {', '.join(GENERATORS)}.")
    for kind in kinds:
        generator, _, part = kind.partition(":")
        if generator not in GENERATORS:
            raise ValueError(f"unknown kind {kind!r}.{nearest(generator, GENERATORS)} Known: {', '.join(GENERATORS)}.")
        parts = _parts_of_generator(generator, table)
        if ":" in kind and part not in parts:
            raise ValueError(
                f"{kind!r}: {part!r} is not a part of {generator!r}.{nearest(part, parts)} Known: {', '.join(parts)}."
            )
        if kinds.count(kind) > 1:
            raise ValueError(f"kind {kind!r} is given twice.")


def needs_parser(kinds: Iterable[str]) -> bool:
    return any(kind.partition(":")[0] in ("swap", "mask") for kind in kinds)


class TextNegatives:
    """Adds the negative columns to batches of captions, in `run_stages` or `Dataset.map(batched=True)`.

    Slots are filled in turn: one negative of each kind in the given order, then a second of each. If a kind has no
    more negatives, the other kinds fill its slots. If none has more, the slot is an empty string, which training
    masks. A dropped text is replaced by the next text. Arguments that are not listed here are options of
    `hfcomp.factory.options.NegativeOptions`.

    Args:
        drop_same_words: Whether to drop texts that only reorder the caption's words. Otherwise, they are kept and
            counted. Dropping them removes most texts of `swap`.
        writer: Settings of `hfcomp.factory.writers.llm_client.build_llm_client`, for the kinds `llm`.
        attempts: Maximum number of consecutive questions about a caption that yield no kept negative. After that, the
            writer is not asked about it again, so a negative costs at most this many questions.
        checks: Further filters, applied to texts that pass the built-in ones.

    Raises:
        ValueError: For an unknown kind, table or matching, or a number below 1.
    """

    def __init__(
        self,
        *,
        kinds: Sequence[str],
        num_negatives: int = 1,
        seed: int = 0,
        parser: str | None = None,
        fill_model: str | None = None,
        keyword_table: str | Path | None = None,
        keyword_matching: str = "paper",
        swap_rule: str = "guarded",
        drop_same_words: bool = False,
        grammar_model: str | None = None,
        grammar_tolerance: float | None = None,
        device: str | None = None,
        writer: Mapping[str, Any] | None = None,
        attempts: int = 3,
        checks: Sequence[Check] = (),
        only_with_negative: bool = False,
    ) -> None:
        if num_negatives < 1:
            raise ValueError(f"num_negatives: found {num_negatives}, expected 1 or more.")
        if keyword_matching not in MATCHINGS:
            raise ValueError(f"keyword_matching: found {keyword_matching!r}, expected one of {', '.join(MATCHINGS)}.")
        if swap_rule not in SWAP_RULES:
            raise ValueError(f"swap_rule: found {swap_rule!r}, expected one of {', '.join(SWAP_RULES)}.")
        self._guards_swaps = swap_rule == "guarded"
        self._table = PAPER_TABLE if keyword_table is None else read_keyword_table(keyword_table)
        self._matching = MATCHINGS[keyword_matching]
        check_kinds(kinds, self._table)
        self._kinds, self._number, self._seed = tuple(kinds), num_negatives, seed
        self._parser = cached_parser(parser) if needs_parser(kinds) else None
        self._fillers = {
            kind: _filler(kind, fill_model, self._parser, device) for kind in kinds if kind.startswith("mask")
        }
        self._llm, self._attempts = _language_models(kinds, writer, device), attempts
        # Checks run from cheap to expensive: a model sees only texts that passed the earlier checks.
        self._checks = [_text_check(is_same_sentence, SAME_SENTENCE)]
        if drop_same_words:
            self._checks.append(_text_check(has_same_words, SAME_WORDS))
        if grammar_model is not None:
            self._checks.append(_grammar_check(grammar_model, grammar_tolerance, device))
        self._checks += checks
        self._only_with_negative = only_with_negative

    def __call__(self, batch: Batch) -> Batch:
        """Returns the batch with the columns of `hfcomp.negatives.negative.as_columns` and its counts."""
        captions = batch["caption"]
        # Rows with the same caption share proposals and questions, but may keep different proposals, because a check
        # may use the image.
        shared = {text: [Proposals() for _ in self._kinds] for text in captions}
        docs = self._parse(shared)
        before, answers = self._rejections(), self._answer_counts()
        for kind_index in range(len(self._kinds)):
            self._request(kind_index, list(shared), shared, docs)
        rows = [Row(text, shared[text]) for text in captions]
        open_rows = list(range(len(rows)))
        # All open rows advance together, so parsers and models get batches instead of single texts.
        while open_rows:
            open_rows = self._advance(batch, rows, open_rows, shared, docs)
        counts = [self._count_row(row) for row in rows]
        if counts:
            # Generators report only totals of their rejections, so the batch's rejections are added to its first row.
            counts[0].update(self._rejections() - before)
        result = batch | as_columns((row.chosen for row in rows), self._number) | {COUNTS: counts}
        if self._llm:
            result[THIS_RUN] = this_run(self._answer_counts(), answers, len(rows))
        if self._only_with_negative:
            result[SET_ASIDE] = [None if row.chosen else NO_NEGATIVE for row in rows]
        return result

    def _advance(
        self,
        batch: Batch,
        rows: Sequence[Row],
        open_rows: Sequence[int],
        shared: Mapping[str, list[Proposals]],
        docs: Mapping[str, Any],
    ) -> list[int]:
        """Requests and filters the next texts, and returns the rows that are still undecided."""
        # Dictionaries serve as ordered sets, so every process asks questions in the order of rows.
        wanted: dict[int, dict[str, None]] = {}
        unseen: list[tuple[int, str]] = []
        undecided: dict[int, None] = {}
        for place in open_rows:
            row = rows[place]
            kind_index = row.choose(self._number)
            if kind_index is None:
                unseen += [(place, negative.text) for negative in row.chosen if negative.text not in row.verdicts]
            else:
                wanted.setdefault(kind_index, {})[row.caption] = None
                undecided[place] = None
        for kind_index, captions in wanted.items():
            self._request(kind_index, list(captions), shared, docs)
        for (place, text), reason in zip(unseen, self._verdicts(batch, unseen), strict=True):
            rows[place].verdicts[text] = reason
            if reason is not None:
                undecided[place] = None
        return list(undecided)

    def _verdicts(self, batch: Batch, pairs: Sequence[tuple[int, str]]) -> list[str | None]:
        """The reason for dropping each text, or None. Only texts that pass a check reach the next."""
        reasons: list[str | None] = [None] * len(pairs)
        for check in self._checks:
            left = [index for index, reason in enumerate(reasons) if reason is None]
            if left:
                verdicts = check(batch, [pairs[index][0] for index in left], [pairs[index][1] for index in left])
                for index, reason in zip(left, verdicts, strict=True):
                    reasons[index] = reason
        return reasons

    def _parse(self, captions: Iterable[str]) -> dict[str, Any]:
        if self._parser is None:
            return {}
        texts = list(captions)
        return dict(zip(texts, self._parser.parse(texts), strict=True))

    def _request(
        self, kind_index: int, captions: Sequence[str], shared: Mapping[str, list[Proposals]], docs: Mapping[str, Any]
    ) -> None:
        """Requests more proposals.

        Other generators return the whole longer list, which replaces the shorter one; a language model's answers are
        appended.
        """
        # Captions with the same progress go into one batch.
        kind = self._kinds[kind_index]
        by_number: dict[tuple[int, int], list[str]] = {}
        for caption in captions:
            before = shared[caption][kind_index]
            # The share is rounded up, so the kinds together propose enough.
            number = before.next_number(-(-self._number // len(self._kinds)))
            by_number.setdefault((before.requested, number), []).append(caption)
        for (start, number), texts in by_number.items():
            if (model := self._llm.get(kind)) is not None:
                answers = model.propose(texts, start=start, end=number, seed=self._seed)
                for text, more in zip(texts, answers, strict=True):
                    negatives = [*shared[text][kind_index].negatives, *more]
                    shared[text][kind_index] = Proposals(negatives, number, self._attempts)
                continue
            proposed = self._propose(kind, texts, [docs[text] for text in texts if text in docs], number)
            for text, negatives in zip(texts, proposed, strict=True):
                shared[text][kind_index] = Proposals(negatives, number)

    def _propose(self, kind: str, captions: Sequence[str], docs: Sequence[Any], number: int) -> list[list[Negative]]:
        generator, _, part = kind.partition(":")
        if generator == "mask":
            return self._fillers[kind].fill(docs, num_negatives=number, seed=self._seed)
        if generator == "swap":
            from hfcomp.negatives.swaps import SWAPS, swap_negatives

            swaps = (part,) if part else SWAPS
            settings = {"swaps": swaps, "num_negatives": number, "seed": self._seed, "guarded": self._guards_swaps}
            return [swap_negatives(doc, **settings) for doc in docs]
        options = {"concepts": (part,) if part else self._table.names, "table": self._table}
        options |= {"num_negatives": number, "seed": self._seed, "matching": self._matching}
        return [keyword_negatives(text, **options) for text in captions]

    def _rejections(self) -> Counter[str]:
        rejections: Counter[str] = Counter()
        for label, generators in ((FILLS, self._fillers), (ANSWERS, self._llm)):
            for generator in generators.values():
                rejections.update({label(name): number for name, number in generator.rejected.items()})
        return rejections

    def _answer_counts(self) -> Counter[str]:
        """Number of answers so far. All kinds share a client."""
        return next((model.counts for model in self._llm.values()), Counter())

    def _count_row(self, row: Row) -> Counter[str]:
        counts = Counter(MADE(negative.kind) for negative in row.chosen)
        counts.update(DROPPED(reason) for reason in row.verdicts.values() if reason)
        if row.duplicates:
            counts[DROPPED(DUPLICATE)] += row.duplicates
        if reordered := sum(has_same_words(row.caption, negative.text) for negative in row.chosen):
            counts[SAME_WORDS_LABEL] += reordered
        if not row.chosen:
            counts[WITHOUT] += 1
        elif len(row.chosen) < self._number:
            counts[TOO_FEW] += 1
        return counts


def _parts_of_generator(generator: str, table: KeywordTable) -> Sequence[str]:
    if generator == "keyword":
        return table.names
    if generator == "swap":
        from hfcomp.negatives.swaps import SWAPS

        return SWAPS
    if generator == "llm":
        from hfcomp.factory.writers.prompts import PARTS as LLM_PARTS

        return LLM_PARTS
    from hfcomp.negatives.mask_filling import PARTS

    return PARTS


def _language_models(kinds: Sequence[str], writer: Mapping[str, Any] | None, device: str | None) -> dict[str, Any]:
    """A generator for each `llm` kind. All share one client or model."""
    wanted = [kind for kind in kinds if kind.partition(":")[0] == "llm"]
    if not wanted:
        return {}
    if writer is None:
        raise ValueError(
            "the kind llm needs a writer. Pass writer=WriterOptions(base_url='http://127.0.0.1:8000/v1')"
            ".writer_settings(), with WriterOptions of hfcomp.factory.writer_options."
        )
    from hfcomp.factory.writers.llm_client import LlmNegatives, build_llm_client, parts_of_kind

    client = build_llm_client(**writer, device=device)
    return {kind: LlmNegatives(parts_of_kind(kind.partition(":")[2]), client) for kind in wanted}


def _filler(kind: str, model: str | None, parser: Any, device: str | None) -> Any:
    from hfcomp.negatives.mask_filling import DEFAULT_MODEL, PARTS, MaskFiller

    part = kind.partition(":")[2]
    return MaskFiller(model or DEFAULT_MODEL, parser=parser, parts=(part,) if part else PARTS, device=device)


def _text_check(is_dropped: Callable[[str, str], bool], reason: str) -> Check:
    """Makes a filter from a predicate on caption and text."""

    def check(batch: Batch, places: Sequence[int], texts: Sequence[str]) -> list[str | None]:
        pairs = zip(places, texts, strict=True)
        return [reason if is_dropped(batch["caption"][place], text) else None for place, text in pairs]

    return check


def _grammar_check(model: str, tolerance: float | None, device: str | None) -> Check:
    from hfcomp.negatives.filters import GrammarFilter

    judge = GrammarFilter(model, device=device, **({} if tolerance is None else {"tolerance": tolerance}))

    def check(batch: Batch, places: Sequence[int], texts: Sequence[str]) -> list[str | None]:
        broken = judge.breaks([batch["caption"][place] for place in places], texts)
        return [GRAMMAR if is_broken else None for is_broken in broken]

    return check
