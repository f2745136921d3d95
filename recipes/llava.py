"""A LLaVA with a fine-tuned image tower: the second step of C2LIP's Table 6 (Pham et al. 2026, section 4.5).

Trains in the two stages of LLaVA-1.5 (Liu et al. 2024, arXiv:2310.03744) on its own files. `--stage projector` joins
the tower of `--vision` and the language model of `--language_model`, and trains only the projector between them on
captions. `--stage instructions` continues with `--llava FOLDER` and also trains the language model, on conversations.
The tower stays frozen. All fields of transformers' TrainingArguments are options too; their defaults are LLaVA's.
A stage cannot resume: Trainer does not find LLaVA's weights in its own checkpoints, whose names transformers changes.
`hfcomp evaluate` scores the resulting folders by VQAScore, as in the paper.
"""

import copy
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from transformers import (
    AddedToken,
    AutoModel,
    AutoProcessor,
    HfArgumentParser,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.models.llava.modeling_llava import LlavaMultiModalProjector

from hfcomp.convert.export import load_llava, load_plain, replace_tower
from hfcomp.data.images import decode_image
from hfcomp.errors import one_line_errors
from hfcomp.modeling import tower_parts
from hfcomp.modeling.backbones import load_processor
from hfcomp.modeling.embedding import blank_images, vision_config
from hfcomp.negatives.language_models import load_language_model
from hfcomp.reading import read_json

IMAGE, IGNORED = "<image>", -100
# Vicuna's turns, as in LLaVA-1.5, without its system prompt.
TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() }}: {% for part in message['content'] %}"
    "{{ '<image>\n' if part['type'] == 'image' else part['text'] }}{% endfor %}"
    "{{ eos_token if message['role'] == 'assistant' else ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
# LLaVA-1.5's values: 256 rows per step on eight GPUs for the projector, 128 for both.
DEFAULTS = {
    **{"num_train_epochs": 1.0, "lr_scheduler_type": "cosine", "warmup_steps": 0.03, "weight_decay": 0.0},
    **{"remove_unused_columns": False, "save_strategy": "no", "output_dir": "runs/llava"},
}
STAGES = {
    "projector": {"learning_rate": 1e-3, "per_device_train_batch_size": 32},
    "instructions": {"learning_rate": 2e-5, "per_device_train_batch_size": 16},
}
OPTIONS = {
    "data": "JSON file of LLaVA: rows with conversations and mostly an image",
    "images": "Folder with the images that the file names",
    "vision": "Hub id or folder of the CLIP or SigLIP whose tower to use, such as a finished run",
    "language_model": "Hub id or folder of the language model",
    "llava": "LLaVA to continue with: from the first stage, or from hfcomp convert --to llava",
}


class Conversation(NamedTuple):
    """Questions and answers in turn, about an image or about none."""

    image: Path | None
    texts: list[str]


def read_conversations(file: Path, images: Path, *, captions: bool) -> list[Conversation]:
    """Reads and checks LLaVA's rows. `captions`: whether each row must have an image and a single answer."""
    listed = read_json(file)
    if not isinstance(listed, list):
        raise ValueError(f"{file}: found {type(listed).__name__}, expected a list of rows.")
    rows = [_read_row(row, images, f"{file}: row {number}") for number, row in enumerate(listed)]
    if captions and any(row.image is None or len(row.texts) != 2 for row in rows):
        raise ValueError(f"{file}: found conversations, expected an answer per image. Pass --stage instructions.")
    missing = [row.image for row in rows if row.image is not None and not row.image.is_file()]
    if missing or not rows:
        what = f"{len(missing):,} of the images missing, such as {missing[0]}" if missing else "no rows"
        raise ValueError(f"{file}: found {what}. Complete the data, or remove the rows.")
    return rows


def _read_row(row: Any, images: Path, where: str) -> Conversation:
    try:
        turns = [(turn["from"], turn["value"].replace(IMAGE, "").strip()) for turn in row["conversations"]]
        place = PurePosixPath(row["image"]) if "image" in row else None
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"{where}: expected conversations with from and value, and an image's path.") from None
    if place is not None and (place.is_absolute() or ".." in place.parts):
        raise ValueError(f"{where}: found the image {str(place)!r}, expected a path inside --images.")
    if turns and turns[0][0] == "gpt":  # LLaVA skips an answer without a question
        del turns[0]
    turns = turns[: len(turns) // 2 * 2]
    if not turns or any(name != ("human", "gpt")[number % 2] for number, (name, _) in enumerate(turns)):
        raise ValueError(f"{where}: expected turns of human and gpt, one after the other.")
    return Conversation(None if place is None else images / place, [text for _, text in turns])


def join_llava(vision: str, language_model: str) -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
    """Makes a LLaVA of an image tower and a language model; its projector has random weights."""
    backbone = load_plain(vision, dtype=torch.float32)
    tower = AutoModel.from_config(vision_config(backbone.config))
    replace_tower(vision, getattr(backbone, tower_parts(backbone, "image")[0]), tower)
    language, tokenizer, _ = load_language_model(language_model, "AutoModelForCausalLM", device="cpu")
    tokenizer.add_tokens(AddedToken(IMAGE, special=True, normalized=False), special_tokens=True)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.unk_token or tokenizer.eos_token
    if len(tokenizer) > language.get_input_embeddings().num_embeddings:
        language.resize_token_embeddings(len(tokenizer))
    patches = (tower.config.image_size // tower.config.patch_size) ** 2
    with torch.inference_mode():
        states = tower(blank_images(backbone.config, 1), output_hidden_states=True).hidden_states
    others = states[-2].shape[1] - patches  # CLIP's class token, which LLaVA leaves out; SigLIP has none
    shared = {"vision_feature_select_strategy": "default" if others else "full"}
    config = LlavaConfig(
        vision_config=tower.config, text_config=language.config, image_seq_length=patches, **shared,
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
    )  # fmt: skip
    with torch.device("meta"):  # the modules below replace all weights
        model = LlavaForConditionalGeneration(config)
    model.model.vision_tower, model.model.language_model = tower, language.base_model
    model.model.multi_modal_projector, model.lm_head = LlavaMultiModalProjector(config), language.lm_head
    model.generation_config = language.generation_config
    shared |= {"patch_size": tower.config.patch_size, "num_additional_image_tokens": others}
    images = load_processor(vision, argument="vision").image_processor
    return model, LlavaProcessor(images, tokenizer, chat_template=TEMPLATE, **shared)


def segments(row: Conversation, processor: Any, *, captions: bool) -> list[tuple[str, bool]]:
    """The text of a row in pieces, each with whether it is an answer, which the model learns to write."""
    if captions:  # as in LLaVA's first stage, which has no question
        return [(processor.image_token, False), (f"{row.texts[1]}\n", True)]
    messages: list[dict[str, Any]] = []
    before, pieces = "", []
    for number, text in enumerate(row.texts):
        image = [{"type": "image"}] if row.image is not None and not number else []
        content = [*image, {"type": "text", "text": text}]
        messages.append({"role": "assistant" if number % 2 else "user", "content": content})
        whole = processor.apply_chat_template(messages, add_generation_prompt=number % 2 == 0, tokenize=False)
        if not whole.startswith(before):
            raise ValueError("llava: its chat template changes earlier turns. Choose another model.")
        pieces.append((whole[len(before) :], number % 2 == 1))
        before = whole
    return pieces


def collate(rows: Sequence[Conversation], processor: Any, max_length: int, *, captions: bool) -> dict[str, Any]:
    """A batch of images, tokens and labels. Only the tokens of answers have a label."""
    pieces = [segments(row, processor, captions=captions) for row in rows]
    images = [decode_image(row.image, where=str(row.image)) for row in rows if row.image is not None]
    batch = processor(
        text=["".join(text for text, _ in row) for row in pieces], images=images or None, padding=True,
        truncation=True, max_length=max_length, return_offsets_mapping=True, return_tensors="pt",
    )  # fmt: skip
    ends, tokens = torch.as_tensor(batch.pop("offset_mapping"))[..., 1], batch["input_ids"]
    labels = torch.full_like(tokens, IGNORED)
    for number, (row, conversation) in enumerate(zip(pieces, rows, strict=True)):
        # The processor has repeated the image's mark, which stands before all answers.
        repeated = int((tokens[number] == processor.image_token_id).sum()) - (conversation.image is not None)
        end = repeated * len(processor.image_token)
        for text, is_answer in row:
            start, end = end, end + len(text)
            if is_answer:
                answer = (ends[number] > start) & (ends[number] <= end)
                labels[number, answer] = tokens[number, answer]
    if (labels == IGNORED).all():  # the loss would be NaN
        raise ValueError(f"max_length: found no answer in {max_length} tokens of each row. Raise --max_length.")
    return {**batch, "labels": labels}


def parser(stage: str = "projector") -> HfArgumentParser:
    """The command line, with LLaVA's defaults for a stage."""
    made = HfArgumentParser(TrainingArguments, description=__doc__, allow_abbrev=False)
    for name, text in OPTIONS.items():
        made.add_argument(f"--{name}", required=name in ("data", "images"), help=text)
    made.add_argument("--stage", choices=STAGES, default="projector", help="What to train: see above")
    made.add_argument("--max_length", type=int, default=2048, help="Tokens of a row, including those of its image")
    made.set_defaults(**DEFAULTS, **STAGES[stage])
    return made


def load(options: Any) -> tuple[Any, Any]:
    """The LLaVA to train and its processor."""
    if options.llava is None:
        return join_llava(options.vision, options.language_model)
    model = load_llava(options.llava)
    if not isinstance(model, LlavaForConditionalGeneration):
        raise ValueError(f"llava: found a {type(model).__name__}, expected a LlavaForConditionalGeneration.")
    # In fp32, which `--bf16 true` trains under autocast.
    return model.float(), AutoProcessor.from_pretrained(options.llava, trust_remote_code=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the stage that the command line selects."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with one_line_errors():
        training, options = parser(parser().parse_args(words).stage).parse_args_into_dataclasses(words)
        captions, folder = options.stage == "projector", Path(training.output_dir)
        if {options.vision is None, options.language_model is None} != {options.llava is not None}:
            raise ValueError("expected either --llava MODEL, or both --vision MODEL and --language_model MODEL.")
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"output_dir: found files in {folder}, expected a new folder. Pass another one.")
        rows = read_conversations(Path(options.data), Path(options.images), captions=captions)
        set_seed(training.seed)  # for the new projector
        model, processor = load(options)
        language = () if captions else (model.model.language_model, model.lm_head)
        model.requires_grad_(False)
        for part in (model.model.multi_modal_projector, *language):
            part.requires_grad_(True)
        # A copy: a tokenizer keeps the truncation of its last call, and would be saved with it.
        form = partial(collate, processor=copy.deepcopy(processor), max_length=options.max_length, captions=captions)
        trainer = Trainer(model, training, form, rows, processing_class=processor)
        number = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        print(f"{options.stage}: {len(rows):,} rows, {number:,} weights to train")
        trainer.train()
        trainer.save_model()


if __name__ == "__main__":
    main()
