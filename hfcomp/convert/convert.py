"""Converts open_clip and OpenAI checkpoints to folders that `AutoModel` and `AutoProcessor` load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from transformers import CLIPConfig, CLIPModel, CLIPProcessor, SiglipConfig, SiglipModel, SiglipProcessor

from hfcomp import __version__
from hfcomp.checksums import file_hash
from hfcomp.convert import clip_layout, processors, siglip_layout
from hfcomp.convert.activations import Activation, clip_activation, siglip_activation
from hfcomp.convert.checkpoint_file import Checkpoint, read_checkpoint
from hfcomp.convert.lora import merge_lora
from hfcomp.convert.options import ConversionOptions
from hfcomp.convert.processors import image_processor, preprocessing
from hfcomp.convert.released import find_released
from hfcomp.convert.weight_table import Weight, source_names, to_transformers
from hfcomp.modeling.checkpoints import write_sentence_transformers_files
from hfcomp.modeling.weight_checks import check_same, raise_on_mismatch
from hfcomp.writing import check_free_folder, replacing_folder, write_json

RECORD_FILE = "conversion.json"


class Parts(NamedTuple):
    """A converted model before it is written.

    Attributes:
        layout: Description of the checkpoint's kind.
        unused: Names of tensors and entries in the file that no weight of the model uses.
    """

    layout: str
    model: Any
    processor: Any
    activation: Activation
    preprocessing: Any
    unused: tuple[str, ...]


def convert_checkpoint(source: str | Path, folder: Path, options: ConversionOptions | None = None) -> dict[str, Any]:
    """Converts a checkpoint to a plain `CLIPModel` or `SiglipModel` with its processor.

    The folder contains the output of `save_pretrained`, and `conversion.json` with the source of each setting. Weights
    keep their values and dtype; a checkpoint with several dtypes becomes fp32, which represents all of them exactly.

    Args:
        source: Weights file, folder with `open_clip_config.json`, Hub id, or name of a released checkpoint.
        folder: Output folder. Created if missing; replaced if an earlier conversion wrote it.
        options: Information that the checkpoint lacks.

    Returns:
        The content of `conversion.json`.

    Raises:
        ValueError: If the checkpoint cannot be read safely, transformers does not have its network, weights are
            missing or left over, no source states the activation, or the folder contains other files.
    """
    # Check the folder before reading anything, because a checkpoint may require downloading gigabytes.
    check_folder(folder)
    place, options = find_released(str(source), folder, options or ConversionOptions())
    checkpoint = read_checkpoint(place, state=options.state, prefix=options.prefix)
    if "visual.conv1.weight" in checkpoint.tensors or "visual.layer1.0.conv1.weight" in checkpoint.tensors:
        parts = _clip(checkpoint, options)
    else:
        parts = _siglip(checkpoint, options)
    record = _record(source, checkpoint, parts, options)
    with replacing_folder(folder) as part:
        parts.model.save_pretrained(part)
        parts.processor.save_pretrained(part)
        write_sentence_transformers_files(part, parts.model.config)
        write_json(part / RECORD_FILE, record)
    return record


def check_folder(folder: Path) -> None:
    """Raises an error if a folder contains anything except an earlier conversion."""
    check_free_folder(folder, overwrite=True, written=[RECORD_FILE], whole=True, option="output")


def _clip(checkpoint: Checkpoint, options: ConversionOptions) -> Parts:
    merged, rank = merge_lora(checkpoint.tensors)
    tensors, settings = clip_layout.fold_positions(merged), (checkpoint.config or {}).get("model_cfg")
    is_long, checkpoint = tensors is not merged, checkpoint._replace(tensors=tensors)
    names = set(tensors)
    clip_layout.reject_other_towers(names)
    prefix = clip_layout.text_prefix(tensors)
    layers = [clip_layout.count_layers(tensors, tower) for tower in ("visual.", prefix)]
    table = clip_layout.clip_table(prefix, *layers)
    unused = _check_names(checkpoint, table)
    patch = tensors["visual.conv1.weight"].shape[-1]
    activation = clip_activation(
        override=options.activation,
        model=options.model,
        tag=options.pretrained,
        config=settings,
        names=names,
        patch_size=patch,
    )
    prepare = preprocessing(checkpoint.config, options.pretrained)
    sizes = clip_layout.clip_sizes(tensors, settings, activation, options.head_width)
    tokenizer = processors.clip_tokenizer(
        options.processor or processors.tokenizer_folder(checkpoint.path),
        own_name=((settings or {}).get("text_cfg") or {}).get("hf_tokenizer_name"),
        vocabulary=sizes["text_config"]["vocab_size"],
        length=sizes["text_config"]["max_position_embeddings"],
    )
    config = _config(CLIPConfig, sizes, tokenizer)
    model = _load_weights(CLIPModel, config, to_transformers(table, tensors), checkpoint.path)
    images = image_processor(prepare, config.vision_config.image_size)
    processor = CLIPProcessor(image_processor=images, tokenizer=tokenizer)
    layout = "Long-CLIP, two position tables folded into one" if is_long else "CLIP of open_clip or OpenAI"
    layout += f", LoRA of rank {rank} merged" if rank else ""
    return Parts(layout, model, processor, activation, prepare, unused)


def _siglip(checkpoint: Checkpoint, options: ConversionOptions) -> Parts:
    tensors, settings = checkpoint.tensors, (checkpoint.config or {}).get("model_cfg")
    siglip_layout.reject_other_trunks(set(tensors), settings)
    trunk = f"{siglip_layout.TRUNK}blocks."
    image_layers = len({name.split(".")[3] for name in tensors if name.startswith(trunk)})
    table = siglip_layout.siglip_table(image_layers, clip_layout.count_layers(tensors, "text."))
    unused = _check_names(checkpoint, table)
    activation = siglip_activation(override=options.activation, config=settings)
    prepare = preprocessing(checkpoint.config, options.pretrained)
    sizes = siglip_layout.siglip_sizes(tensors, settings, activation)
    text = sizes["text_config"]
    tokenizer = processors.siglip_tokenizer(
        options.processor or processors.tokenizer_folder(checkpoint.path),
        vocabulary=text["vocab_size"],
        length=text["max_position_embeddings"],
    )
    config = _config(SiglipConfig, sizes, tokenizer)
    model = _load_weights(SiglipModel, config, to_transformers(table, tensors), checkpoint.path)
    images = image_processor(prepare, config.vision_config.image_size, siglip=True)
    processor = SiglipProcessor(image_processor=images, tokenizer=tokenizer)
    return Parts("SigLIP of open_clip", model, processor, activation, prepare, unused)


def _check_names(checkpoint: Checkpoint, table: list[Weight]) -> tuple[str, ...]:
    """Returns unused names. Raises ValueError if names are missing, or names of the towers are unused."""
    towers, others = clip_layout.leftover(checkpoint.tensors, table)
    missing = set(source_names(table)) - set(checkpoint.tensors)
    raise_on_mismatch(checkpoint.path, missing=missing, unused=towers)
    return (*others, *checkpoint.others)


def _config(kind: Any, sizes: dict[str, Any], tokenizer: Any) -> Any:
    # With an `eos_token_id` of 2, as in older conversions, CLIPModel takes a text's embedding from its highest token
    # id rather than its end, and a token added to the vocabulary would move that position.
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return kind(**{**sizes, "text_config": {**sizes["text_config"], **ids}})


def _load_weights(kind: Any, config: Any, tensors: Mapping[str, torch.Tensor], path: Path) -> Any:
    # A transformers folder has one dtype for all weights, and fp32 represents every half-precision number exactly.
    types = {value.dtype for value in tensors.values()}
    if len(types) > 1:
        tensors = {name: value.float() for name, value in tensors.items()}
    # Nothing is allocated or initialized: the checkpoint's tensors become the model's. Unsaved buffers, such as
    # position ids, have no values, so this model can be saved but not run.
    with torch.device("meta"):
        model = kind(config)
    check_same(path, tensors, model.state_dict())
    model.load_state_dict(dict(tensors), assign=True)
    return model.eval()


def _record(source: Any, checkpoint: Checkpoint, parts: Parts, options: ConversionOptions) -> dict[str, Any]:
    config, prepare = parts.model.config, parts.preprocessing
    return {
        # A local path means nothing on another machine, but the hash identifies the file anywhere.
        "source": source if isinstance(source, str) and not Path(source).exists() else checkpoint.path.name,
        "sha256": file_hash(checkpoint.path),
        "layout": parts.layout,
        "model": type(parts.model).__name__,
        "state": checkpoint.state,
        "prefix": checkpoint.prefix,
        "dtype": str(parts.model.dtype).removeprefix("torch."),
        "activation": parts.activation._asdict(),
        "attention_heads": {
            "image": config.vision_config.num_attention_heads,
            "text": config.text_config.num_attention_heads,
        },
        "preprocessing": {**prepare._asdict(), "size": config.vision_config.image_size},
        "options": {name: value for name, value in vars(options).items() if value is not None and name != "processor"},
        "unused": list(parts.unused),
        "versions": library_versions(),
    }


def library_versions() -> dict[str, str]:
    return {"hfcomp": __version__, "transformers": transformers.__version__, "torch": torch.__version__}
