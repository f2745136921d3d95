"""Questions to a language model: a model from plain settings, what identifies its answers, and the kinds `llm`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    EditAnswer,
    Refused,
    Reply,
    Request,
    Writer,
    answered_edit,
    answered_text,
    token_budget,
)
from hfcomp.negatives.negative import Negative, caption_rng
from hfcomp.store import cache_folder

Answer = TypeVar("Answer")

# Each further attempt at the same caption is warmer by this amount. Our choice: at 0 it would repeat itself.
RISE = 0.2


@dataclass(frozen=True)
class Question:
    """A prompt about a caption, captions or a name.

    Attributes:
        purpose: parts questions about the same; each has random numbers of its own.
        attempt: how often it was asked before.
        shared: What questions in other words have in common of which one answer is enough, if there are any.
    """

    prompt: str
    about: str
    purpose: tuple[str, ...]
    attempt: int = 0
    shared: str = ""


class LlmClient:
    """Asks a language model for captions, names of concepts, or edits of images.

    Args:
        plain: whether its answers are text and not JSON.
        temperature: Temperature of the first attempt; each further one is `RISE` warmer.
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
        check: Callable[[int, str], Answer],
        field: AnswerField = "caption",
    ) -> list[Answer | Refused]:
        """Asks for texts; an answer depends on its question and the seed only.

        Args:
            check: From the place of a question and the text in its answer to what is made of it; raises `Refused` if
                the answer cannot be used.

        Returns:
            For each question what `check` returned, or why there is no usable answer.

        Raises:
            UnusableAnswers: after many answers without a usable one.
        """

        def read(place: int, reply: Reply) -> Answer:
            return check(place, answered_text(reply, plain=self._plain, field=field))

        return self._ask(questions, seed, field, read)

    def edits(
        self, questions: Sequence[Question], seed: int, check: Callable[[int, EditAnswer], Answer]
    ) -> list[Answer | Refused]:
        """Asks for edits of images, see `answers`."""
        return self._ask(
            questions, seed, "edit", lambda place, reply: check(place, answered_edit(reply, plain=self._plain))
        )

    def _ask(
        self, questions: Sequence[Question], seed: int, field: AnswerField, read: Callable[[int, Reply], Answer]
    ) -> list[Answer | Refused]:
        requests = [self._request(question, seed, field) for question in questions]
        # The last argument is the key that attempts share. By it the cache keeps rejected answers that led to a usable
        # one.
        return self._writer.answers(requests, read, [question.shared or question.prompt for question in questions])

    def _request(self, question: Question, seed: int, field: AnswerField) -> Request:
        rng = caption_rng(seed, question.about, "llm", *question.purpose, str(question.attempt))
        # Rounded, because 0.7 + 0.2 would be 0.8999999999999999 in the request, whose content is the key of its
        # answer.
        warmth = round(self._temperature + RISE * question.attempt, 6)
        # A name is short, however long its captions are.
        budget = token_budget("" if field == "concept" else question.about)
        return Request(question.prompt, rng.getrandbits(31), warmth, budget, field)


def retry_refused(
    number: int, attempts: int, ask: Callable[[list[int], int], Sequence[Answer | Refused]]
) -> tuple[dict[int, Answer], list[list[Refused]]]:
    """Asks again for what was refused.

    Args:
        ask: From the places of the questions that are left, and the number of the attempt, to an answer for each.

    Returns:
        The usable answers by place, and the refusals of each question in their order.
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
    """The model that the settings of `hfcomp.factory.options.WriterOptions` name."""
    model: Writer
    if writer == "transformers":
        from hfcomp.factory.writers.in_process import InProcessWriter

        # Nothing constrains a small model to a schema here, so it answers in plain text.
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
        raise ValueError(f"writer {writer!r} is no language model. Choose endpoint or transformers.")
    cache = AnswerCache(Path(answer_cache) if answer_cache else cache_folder("answers"))

    def advise(reasons: Counter[str]) -> str:
        return _advice(reasons, writer, is_off=thinking == "off", is_plain=plain_answers)

    return LlmClient(CachedWriter(model, cache, advise), plain=plain_answers, temperature=temperature)


def _advice(reasons: Counter[str], writer: str, *, is_off: bool, is_plain: bool) -> str:
    """What to do if no answer can be used."""
    (reason, _), *_ = reasons.most_common(1)
    if writer == "endpoint":
        if reason in (CUT, ONLY_THOUGHTS, EMPTY):
            served = " --thinking as_served" if is_off and reason != CUT else ""
            return f"If the model reasons before it answers, pass{served} --request_options max_tokens=4096."
        if reason == NOT_JSON and not is_plain:
            return "If the server ignores the JSON schema of a request, pass --plain_answers."
    return "Check what the model answers, or choose another --llm."


def writer_facts(settings: Mapping[str, Any], prompts: Path) -> dict[str, Any]:
    """What a manifest says of a writer: nothing of this machine, no address and no key."""
    facts = {name: settings[name] for name in ("writer", "llm", "temperature")}
    if settings["writer"] == "transformers":
        facts["llm"] = model_facts(settings["llm"])
    else:
        facts["llm"] = without_local_paths(settings["llm"])
        # These change only requests to an endpoint.
        facts |= {name: settings[name] for name in ("thinking", "plain_answers")}
        if settings["request_options"]:  # plans of builds without it still resume
            facts["request_options"] = settings["request_options"]
    return facts | {"prompts": prompt_facts(prompts)}


class LlmNegatives:
    """Proposes negatives of one or all of `PARTS`.

    Args:
        parts: Parts to ask for in turn; which is the first depends on the caption and the seed.

    Attributes:
        rejected: answers that were refused, by reason.
    """

    def __init__(self, parts: Sequence[Part], client: LlmClient) -> None:
        self._parts, self._client = tuple(parts), client
        self.rejected: Counter[str] = Counter()

    @property
    def counts(self) -> Counter[str]:
        return self._client.counts

    def propose(self, captions: Sequence[str], *, start: int, end: int, seed: int) -> list[list[Negative | None]]:
        """The answers to some questions about each caption.

        Args:
            captions: The captions, all different.
            start: Number of the first question.
            end: Number of the question after the last one.

        Returns:
            For each caption and question a negative, or None for an answer that was refused.
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
        # Captions begin with different parts, so a set with one negative per caption has all kinds.
        first = caption_rng(seed, caption, "llm part").randrange(len(self._parts))
        return self._parts[(first + turn) % len(self._parts)]


def chosen_parts(part: str) -> tuple[Part, ...]:
    """The parts of a kind: all of `llm`, one of `llm:replace_obj`."""
    return tuple(one for one in PARTS if not part or one == part)
