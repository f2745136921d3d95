"""Clients for language models, made from plain settings, the identity of their answers, and the kinds `llm`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hfcomp.data.publishing import without_local_paths
from hfcomp.factory.sources import model_facts
from hfcomp.factory.writers.answer_cache import AnswerCache, CachedWriter
from hfcomp.factory.writers.changes import changed_part
from hfcomp.factory.writers.prompts import PARTS, Part, part_prompt, prompt_facts
from hfcomp.factory.writers.requests import (
    CUT,
    EMPTY,
    NOT_JSON,
    ONLY_THOUGHTS,
    AnswerField,
    Refused,
    Reply,
    Request,
    Writer,
    answered_edit,
    answered_phrases,
    answered_text,
    token_budget,
)
from hfcomp.negatives.negative import Negative, caption_rng

Answer = TypeVar("Answer")

# Increase of the temperature with each further attempt. Our choice: at 0 the model would repeat itself.
RISE = 0.2


_READERS: Mapping[AnswerField, Callable[..., Any]] = {
    "caption": answered_text,
    "concept": partial(answered_text, field="concept"),
    **{"edit": answered_edit, "phrases": answered_phrases},
}


@dataclass(frozen=True)
class Question:
    """A prompt about a caption, several captions, or a name.

    Attributes:
        about: Subject of the prompt; decides its random numbers and the token budget.
        purpose: Distinguishes questions about the same subject; each has its own random numbers.
        attempt: Number of earlier attempts.
        shared: Text that alternative questions share if one answer is enough for all of them; empty without any.
    """

    prompt: str
    about: str
    purpose: tuple[str, ...]
    attempt: int = 0
    shared: str = ""


class LlmClient:
    """Queries a language model for captions, names of concepts, image edits, or phrases of captions.

    Args:
        plain: Whether answers are plain text instead of JSON.
        temperature: Temperature of the first attempt; each further attempt adds `RISE`.
    """

    def __init__(self, writer: CachedWriter, *, plain: bool, temperature: float) -> None:
        self._writer, self._plain, self._temperature = writer, plain, temperature

    @property
    def counts(self) -> Counter[str]:
        return Counter(self._writer.counts)

    def answers(
        self,
        questions: Sequence[Question],
        seed: int,
        check: Callable[[int, Any], Answer],
        field: AnswerField = "caption",
    ) -> list[Answer | Refused]:
        """Requests answers of a kind. Each depends only on its question and the seed.

        Args:
            check: Function from the place of a question and its answer (a text, an edit, or a list of phrases) to a
                result. It raises `Refused` if the answer cannot be used.

        Returns:
            For each question the result of `check`, or the reason why no answer is usable.

        Raises:
            UnusableAnswers: After many answers without a usable one.
        """

        def read(place: int, reply: Reply) -> Answer:
            return check(place, _READERS[field](reply, plain=self._plain))

        requests = [self._request(question, seed, field) for question in questions]
        # The last argument is the key that attempts share, by which the cache stores rejected answers that led to a
        # usable one.
        return self._writer.answers(requests, read, [question.shared or question.prompt for question in questions])

    def _request(self, question: Question, seed: int, field: AnswerField) -> Request:
        rng = caption_rng(seed, question.about, "llm", *question.purpose, str(question.attempt))
        # The sum is rounded, because the request's content is the key of its answer, and 0.7 + 0.2 would be
        # 0.8999999999999999.
        warmth = round(self._temperature + RISE * question.attempt, 6)
        # A name is short, however long the captions are.
        budget = token_budget("" if field == "concept" else question.about)
        return Request(question.prompt, rng.getrandbits(31), warmth, budget, field)


def retry_refused(
    number: int, attempts: int, ask: Callable[[list[int], int], Sequence[Answer | Refused]]
) -> tuple[dict[int, Answer], list[list[Refused]]]:
    """Repeats questions whose answers were refused.

    Args:
        number: Number of questions.
        attempts: Maximum attempts per question.
        ask: Function from the places of the open questions and the number of the attempt to an answer for each.

    Returns:
        The usable answers by place, and the refusals of each question in order.
    """
    usable: dict[int, Answer] = {}
    refused: list[list[Refused]] = [[] for _ in range(number)]
    for attempt in range(attempts):
        left = [place for place in range(number) if place not in usable]
        if not left:
            break
        for place, answer in zip(left, ask(left, attempt), strict=True):
            if isinstance(answer, Refused):
                refused[place].append(answer)
            else:
                usable[place] = answer
    return usable, refused


def build_llm_client(
    *,
    writer: str,
    base_url: str | None,
    llm: str,
    temperature: float,
    concurrency: int,
    retries: int,
    llm_timeout: float,
    thinking: str,
    plain_answers: bool,
    request_options: Mapping[str, Any],
    answer_cache: str | None,
    llm_batch_size: int,
    device: str | None = None,
) -> LlmClient:
    """Makes a client from the settings of `hfcomp.factory.writer_options.WriterOptions`."""
    model: Writer
    if writer == "transformers":
        from hfcomp.factory.writers.in_process import InProcessWriter

        # Nothing constrains this model to a schema, so it answers in plain text.
        model, plain_answers = InProcessWriter(llm, batch_size=llm_batch_size, device=device), True
    elif writer == "endpoint":
        from hfcomp.factory.writers.endpoint import EndpointWriter

        model = EndpointWriter(
            base_url or "",
            model=llm,
            concurrency=concurrency,
            retries=retries,
            timeout=llm_timeout,
            thinking=thinking,
            plain_answers=plain_answers,
            request_options=request_options,
        )
    else:
        raise ValueError(f"writer {writer!r} is not a language model. Choose endpoint or transformers.")
    cache = AnswerCache(answer_cache)

    def advise(reasons: Counter[str]) -> str:
        return _advice(reasons, writer, is_off=thinking == "off", is_plain=plain_answers)

    return LlmClient(CachedWriter(model, cache, advise), plain=plain_answers, temperature=temperature)


def _advice(reasons: Counter[str], writer: str, *, is_off: bool, is_plain: bool) -> str:
    """Advice for the user if no answer can be used."""
    (reason, _), *_ = reasons.most_common(1)
    if writer == "endpoint":
        if reason in (CUT, ONLY_THOUGHTS, EMPTY):
            served = " --thinking as_served" if is_off and reason != CUT else ""
            return f"If the model reasons before it answers, pass{served} --request_options max_tokens=4096."
        if reason == NOT_JSON and not is_plain:
            return "If the server ignores the JSON schema of a request, pass --plain_answers."
    return "Check the model's answers, or choose another --llm."


def writer_facts(settings: Mapping[str, Any], prompts: Path) -> dict[str, Any]:
    """A manifest's facts about a writer, without local paths, address or key."""
    facts = {name: settings[name] for name in ("writer", "llm", "temperature")}
    if settings["writer"] == "transformers":
        facts["llm"] = model_facts(settings["llm"])
    else:
        facts["llm"] = without_local_paths(settings["llm"])
        # These settings affect only requests to an endpoint.
        facts |= {name: settings[name] for name in ("thinking", "plain_answers")}
        if settings["request_options"]:  # omitted if empty, so builds of an earlier hfcomp still resume
            facts["request_options"] = settings["request_options"]
    return facts | {"prompts": prompt_facts(prompts)}


class LlmNegatives:
    """Proposes negatives of some of `PARTS`.

    Args:
        parts: Parts to request in turn. The first one depends on the caption and the seed.

    Attributes:
        rejected: Number of refused answers, by reason.
    """

    def __init__(self, parts: Sequence[Part], client: LlmClient) -> None:
        self._parts, self._client = tuple(parts), client
        self.rejected: Counter[str] = Counter()

    @property
    def counts(self) -> Counter[str]:
        return self._client.counts

    def propose(self, captions: Sequence[str], *, start: int, end: int, seed: int) -> list[list[Negative | None]]:
        """Returns the answers to consecutive questions about each caption.

        Args:
            captions: Captions without duplicates.
            start: Number of the first question.
            end: Number after the last question.

        Returns:
            For each caption and question a negative, or None for a refused answer.
        """
        turns = [(caption, turn) for caption in captions for turn in range(start, end)]
        parts, all_parts = [self._part(caption, turn, seed) for caption, turn in turns], ",".join(self._parts)
        questions = [
            Question(part_prompt(caption, part), caption, (part,), turn // len(self._parts), f"{all_parts}: {caption}")
            for (caption, turn), part in zip(turns, parts, strict=True)
        ]

        def check(place: int, answer: str) -> Negative:
            return changed_part(turns[place][0], parts[place], answer).negative

        answers: list[Negative | None] = []
        for answer in self._client.answers(questions, seed, check):
            if isinstance(answer, Refused):
                self.rejected[str(answer).partition(":")[0]] += 1
                answers.append(None)
            else:
                answers.append(answer)
        number = end - start
        return [answers[place : place + number] for place in range(0, len(answers), number)]

    def _part(self, caption: str, turn: int, seed: int) -> Part:
        # Captions start with different parts, so a dataset with one negative per caption has all kinds.
        first = caption_rng(seed, caption, "llm part").randrange(len(self._parts))
        return self._parts[(first + turn) % len(self._parts)]


def parts_of_kind(part: str) -> tuple[Part, ...]:
    """The parts of a kind: all for `llm`, a single one for `llm:replace_obj`."""
    return tuple(known for known in PARTS if not part or known == part)
