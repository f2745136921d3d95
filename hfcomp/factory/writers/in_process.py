"""Runs a small transformers language model in this process: batched, with the same answer for the same request.

Each row samples with random numbers from its own seed, so the batch and its order do not affect them. Rows of a batch
are padded on the left and masked. The remaining difference is rounding: a matrix product of another shape may differ
in the last digits. If two tokens are equally likely up to these digits (1e-5 in float32, 1e-2 in bfloat16), another
token may be chosen. Within a build this has no effect after the first time, because `answer_cache` stores the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hfcomp.evaluation.encoding.identity import identity
from hfcomp.factory.writers.requests import CUT, Reply, Request
from hfcomp.negatives.language_models import length_sorted_batches, load_language_model


class InProcessWriter:
    """Answers requests with a causal language model.

    Args:
        model: Hub id or folder with safetensors.
    """

    def __init__(self, model: str, *, batch_size: int = 16, device: str | None = None, dtype: str = "float32") -> None:
        self._network, self._tokenizer, _ = load_language_model(
            model, "AutoModelForCausalLM", device=device, dtype=dtype
        )
        self._identity = identity(model)
        self._batch_size, self._dtype = batch_size, dtype
        tokens = self._tokenizer.pad_token_id, self._tokenizer.eos_token_id, 0
        self._padding = next(token for token in tokens if token is not None)

    def payload(self, request: Request) -> dict[str, Any]:
        seen = {name: value for name, value in vars(request).items() if name != "field"}
        return {"in_process": self._identity, "dtype": self._dtype, **seen}

    def replies(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        encoded = [self._encode(request.prompt) for request in requests]
        for batch in length_sorted_batches([len(ids) for ids in encoded], self._batch_size):
            replies = self._generate([encoded[place] for place in batch], [requests[place] for place in batch])
            yield from zip(batch, replies, strict=True)

    def _encode(self, prompt: str) -> list[int]:
        """Applies the model's chat template with thinking off. Without a template the prompt is not changed."""
        if not self._tokenizer.chat_template:
            return list(self._tokenizer(prompt)["input_ids"])
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _generate(self, prompts: Sequence[Sequence[int]], requests: Sequence[Request]) -> list[Reply]:
        import torch

        longest, most = max(map(len, prompts)), max(request.max_tokens for request in requests)
        ids = [[self._padding] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        seen = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        with torch.inference_mode():
            generated = self._network.generate(
                input_ids=torch.tensor(ids, device=self._network.device),
                attention_mask=torch.tensor(seen, device=self._network.device),
                max_new_tokens=most,
                do_sample=False,
                num_beams=1,
                pad_token_id=self._padding,
                logits_processor=[_own_noise(requests)],
            )
        rows = generated[:, longest:].tolist()
        return [self._reply(row, request.max_tokens) for row, request in zip(rows, requests, strict=True)]

    def _reply(self, row: Sequence[int], max_tokens: int) -> Reply:
        ends = self._network.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else set(ends or ())
        end = next((place for place, token in enumerate(row) if token in ends), None)
        # A batch runs to its largest budget, so a row may exceed its own.
        if end is None or end > max_tokens:
            return Reply(problem=CUT)
        return Reply(self._tokenizer.decode(row[:end], skip_special_tokens=True))


def _own_noise(requests: Sequence[Request]) -> Any:
    """Samples by noise: the maximum of logits / temperature + Gumbel noise is a draw from the softmax."""
    import torch

    generators = [torch.Generator().manual_seed(request.seed % 2**63) for request in requests]

    def process(_: Any, scores: Any) -> Any:
        changed = scores.float()
        for row, (request, generator) in enumerate(zip(requests, generators, strict=True)):
            if request.temperature > 0:
                # The minimum is above 0, so no logarithm is infinite.
                uniform = torch.rand(scores.shape[1], generator=generator, dtype=torch.float64).clamp_min(1e-300)
                noise = -torch.log(-torch.log(uniform)).to(scores.device, torch.float32)
                changed[row] = changed[row] / request.temperature + noise
        return changed

    return process
