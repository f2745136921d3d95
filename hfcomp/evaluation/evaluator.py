"""Benchmarks that are loaded once and score one model after another, by one process or several."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import pyarrow as pa

from hfcomp.data.images import SKIP_ADVICE, DamagedImage
from hfcomp.data.overlap import ScoredImages
from hfcomp.distributed import fail_together, first_process_first, gather_objects, rank
from hfcomp.evaluation.engine import (
    DamagedProbeImage,
    Encoder,
    NoModel,
    Prior,
    Report,
    find_damaged,
    run_benchmark,
    without_damaged,
)
from hfcomp.evaluation.loaded import Loaded, load_or_explain
from hfcomp.evaluation.spec import FAILED, Benchmark, Folders, Unavailable
from hfcomp.statistics.outcomes import COLUMNS, Outcomes


@dataclass(frozen=True)
class DetailedScores:
    """What came of all benchmarks, for one model or several.

    Attributes:
        items: one row per item and metric, with the columns of `hfcomp.evaluation.engine.Report.items`.
        scores: texts and cosines behind them, of `hfcomp.evaluation.item_scores`, where they are kept.
        prior: the same rows of what the model chooses without the image; none where that was not asked for.
    """

    items: pd.DataFrame
    scores: pa.Table | None
    prior: pd.DataFrame
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def join(
        cls,
        items: Sequence[pd.DataFrame],
        scores: Sequence[pa.Table],
        priors: Sequence[pd.DataFrame],
        seconds: Mapping[str, Mapping[str, float]] | None = None,
    ) -> DetailedScores:
        """Those of several benchmarks; without any, as in all processes but the first, tables without rows."""
        table = pd.concat(items, ignore_index=True) if items else pd.DataFrame(columns=list(COLUMNS))
        prior = pd.concat(priors, ignore_index=True) if priors else table.iloc[:0]
        return cls(table, pa.concat_tables(scores) if scores else None, prior, seconds or {})


@dataclass
class Evaluator:
    """Benchmarks with their data, which score one model after another.

    All processes load together, and where they share the encoding score together, inside `fail_together`.

    Attributes:
        log: receives each line of `notes` on the first process.
        images: those that are scored and may be in a training set.
        notes: what a reader of the scores has to know, each line once: the models of a run share a tokenizer.
        skipped: `benchmark`, `reason` and `how_to_fix` of each that was not scored, as in `results.json`.
        skip_damaged: whether items with a damaged image are left out and counted; otherwise they are an error when
            they are scored.
    """

    log: Callable[[str], None]
    loaded: list[Loaded] = field(default_factory=list)
    images: list[ScoredImages] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    skip_damaged: bool = False

    def note(self, note: str) -> None:
        # Several models raise the same note about a benchmark.
        if note not in self.notes:
            self.notes.append(note)
            if rank() == 0:
                self.log(note)

    def load(self, benchmarks: Iterable[Benchmark], folders: Folders | None = None, *, strict: bool = True) -> None:
        """Adds benchmarks with their data; one whose data is unavailable is skipped.

        What is wrong with the data is an error; unless `strict`, only where it is the user's own.
        """
        for benchmark in benchmarks:
            with first_process_first():  # the others find what it downloaded
                found = load_or_explain(benchmark, folders or Folders(), strict)
            reasons = [one for one in gather_objects(None if isinstance(found, Loaded) else found) if one is not None]
            if reasons or not isinstance(found, Loaded):  # all processes do the same
                self._skip(benchmark, *reasons[0])
                continue
            found = self._undamaged(found) if self.skip_damaged else found
            self.loaded.append(found)
            for remark in found.remarks():
                self.note(remark)

    def score(
        self,
        encoder: Encoder,
        *,
        model: str = "",
        progress: bool | None = None,
        keep_going: bool = False,
        prior: Prior | None = None,
        keep_scores: bool = False,
    ) -> Iterator[tuple[Loaded, Report]]:
        """Each benchmark and what came of it; outcomes are on the first process alone.

        `model` is named in notes; by default bars are shown for what is not synthetic. With `keep_going` a failure
        costs that benchmark only, on all processes that share the encoding. `prior` and `keep_scores` are those of
        `run_benchmark`.
        """
        how = {"score": (main := rank() == 0), "keep_scores": keep_scores, "prior": prior}
        for one in self.loaded:
            bars = not one.benchmark.synthetic if progress is None else progress
            try:
                with fail_together() if keep_going else nullcontext():
                    report = run_benchmark(one.benchmark, one.data, encoder, progress=main and bars, **how)
            except Unavailable as error:  # the same on all processes
                self._skip(one.benchmark, f"{model}: {error.reason}" if model else error.reason, error.how_to_fix)
                continue
            except Exception as error:
                if not keep_going:
                    raise
                self._skip(one.benchmark, f"{FAILED}{model}: {error}", self._way_out(error))
                continue
            # Noted per model, because each has its own tokenizer and its own longest text.
            counts = {"truncated": report.truncated, "merged": report.merged, "tiny": report.tiny}
            self.note_inputs(one.benchmark.name, counts, f"{model}'s text tower" if model else "")
            if report.pairs and one.benchmark.protocol.pairs(one.data) and one.benchmark.protocol.beyond_pairs:
                left = f"{one.benchmark.protocol.beyond_pairs} is not scored for {model or 'the model'}"
                self.note(f"{one.benchmark.name}: {left}, whose scores are of pairs of an image and a text")
            yield one, report

    def __call__(self, encoder: Encoder) -> pd.DataFrame:
        """One row per item and metric, with the columns of `hfcomp.evaluation.engine.Report.items`."""
        return pd.concat([report.items for _, report in self.score(encoder)], ignore_index=True)

    def score_with_details(self, encoder: Encoder, *, keep_scores: bool, prior: Prior | None) -> DetailedScores:
        reports = [report for _, report in self.score(encoder, keep_scores=keep_scores, prior=prior)]
        scores = [report.scores for report in reports if report.scores is not None]
        priors = [report.prior for report in reports if report.prior is not None]
        return DetailedScores.join([report.items for report in reports], scores, priors)

    def check_names(self, check: Callable[[Outcomes], Any]) -> None:
        """Runs a check of what is scored on outcomes of no model, before there is one.

        Nothing is checked where a probe would have to be fitted first, or where a protocol cannot score equal vectors:
        the outcomes of a model say it then.
        """
        if any(one.data.train is not None for one in self.loaded):
            return
        try:
            # Names of lines follow only from the items: equal vectors give these names without encoding anything.
            scored = [report.items for _, report in self.score(NoModel(), progress=False)]
        except Exception:  # a protocol of the user's may need real vectors
            return
        check(Outcomes(pd.concat(scored, ignore_index=True).assign(arm="")))

    def select_benchmarks(self, titles: Sequence[str]) -> Evaluator:
        return replace(self, loaded=[one for one in self.loaded if one.benchmark.title in titles])

    def of_concept(self, concept: str) -> Evaluator:
        """Each benchmark's items of a concept where it has such, else all: other concepts' texts are not encoded."""
        return replace(self, loaded=[one.of_concept(concept) for one in self.loaded])

    def _undamaged(self, one: Loaded) -> Loaded:
        """The benchmark without items with a damaged image, which the first process looks for."""
        # One process decodes, and all leave out the rows that it found: their batches must be the same.
        damaged = find_damaged(one.benchmark, one.data, progress=sys.stderr.isatty()) if rank() == 0 else None
        return replace(one, data=without_damaged(one.benchmark, one.data, gather_objects(damaged)[0]))

    def _way_out(self, error: Exception) -> str:
        """What to do about a benchmark that failed; of an error of the library also its traceback."""
        others = "The other benchmarks went on." if len(self.loaded) > 1 else ""
        if isinstance(error, DamagedImage | OSError):  # their message is enough
            stays = self.skip_damaged or isinstance(error, DamagedProbeImage | OSError)
            return " ".join(filter(None, ("" if stays else SKIP_ADVICE, others)))
        # It may be a bug in hfcomp, which a sentence in a report does not explain.
        traceback.print_exc(file=sys.stderr)
        return " ".join(filter(None, ("See the error above.", others)))

    def _skip(self, benchmark: Benchmark, reason: str, how_to_fix: str) -> None:
        self.skipped.append({"benchmark": benchmark.name, "reason": reason, "how_to_fix": how_to_fix})

    def note_inputs(self, name: str, counts: Mapping[str, int], tower: str = "") -> None:
        if counts["truncated"]:
            merged = f", {counts['merged']:,} of them to the tokens of another text" if counts["merged"] else ""
            texts = f"{counts['truncated']:,} texts are longer than {tower or 'the text tower'}"
            self.note(f"{name}: {texts} and were cut{merged}")
        if counts["tiny"]:
            self.note(f"{name}: {counts['tiny']:,} images are one pixel wide or high, as failed downloads are")
