"""Text features of a model before training: a frozen copy of its text tower, and its feature files on disk."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from tqdm.auto import tqdm
from transformers.utils import logging

from hfcomp.data.collators import texts_of_row
from hfcomp.data.loading import TrainingRows
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.distributed import gather, gather_objects, rank, world_size
from hfcomp.modeling import encode_texts, tower_parts
from hfcomp.trainers.config import CompositionalConfig
from hfcomp.writing import host, remove_unfinished, replacing, write_text

# Increase if the same model and text would give different features.
VERSION = 1
# A text whose features identify a run's copy in a checkpoint, and how much a copy's features may differ between
# machines. A fingerprint would not work: library versions and new adapters change it but no feature.
PROBE = "A red cube to the left of a small dog."
PROBE_FILE = "frozen_text.json"
PROBE_TOLERANCE = 1e-4
# Configuration entries that do not change features
ORIGIN = ("_name_or_path", "transformers_version", "dtype", "base_model_name_or_path", "peft_version", "revision")


class FrozenText:
    """A frozen copy of a model's text tower, taken at creation. It encodes in float32, without dropout."""

    def __init__(self, backbone: nn.Module, processor: Any) -> None:
        self.tokenizer = TextTokenizer.from_processor(processor, backbone.config)
        plain = backbone.get_base_model() if hasattr(backbone, "peft_config") else backbone
        images = [part for name, part in plain.named_children() if name in tower_parts(plain, "image")]
        # deepcopy uses what its memo holds, so the image parts become `Identity` and are not copied.
        frozen = copy.deepcopy(backbone, {id(part): nn.Identity() for part in images})
        self.backbone = frozen.float().cpu().eval().requires_grad_(False)

    def to(self, device: torch.device | str) -> None:
        self.backbone.to(device)

    def encode(self, texts: list[str]) -> torch.Tensor:
        """Returns L2-normalized features `[n, D]` of texts, without autocast."""
        ids, _ = self.tokenizer(texts)
        device = next(self.backbone.parameters()).device
        padded = self.tokenizer.pad(ids, self.tokenizer.length(ids)).to(device)
        # Training may run in autocast, which must not affect the reference: a file's features would depend on the
        # precision of the run that wrote it.
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            return encode_texts(self.backbone, padded)

    def sign(self, folder: str | Path) -> None:
        """Writes into a checkpoint a record of this copy, which must be on the CPU."""
        write_text(Path(folder) / PROBE_FILE, json.dumps(self.encode([PROBE])[0].tolist()))

    def check(self, folder: str | Path) -> None:
        """Raises if a checkpoint's run used a different copy. A checkpoint without a record passes."""
        path = Path(folder) / PROBE_FILE
        if not path.is_file():
            return
        actual, expected = self.encode([PROBE])[0], torch.tensor(json.loads(path.read_text()))
        if actual.shape != expected.shape or not torch.allclose(actual, expected, atol=PROBE_TOLERANCE, rtol=0):
            raise ValueError(
                f"the run in {folder} has text features of a different model. Pass the run's initial model, not its "
                "checkpoint, and use the checkpoint only as resume_from_checkpoint; or start a new run from these "
                "weights without resume_from_checkpoint."
            )

    @cached_property
    def fingerprint(self) -> bytes:
        """Identifies this copy: weights, configuration and tokenizer. The copy must be on the CPU."""
        facts = {"version": VERSION, "tokenizer": self.tokenizer.facts(), "model": _settings(self.backbone)}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=_plain).encode())
        for name, weight in sorted(self.backbone.state_dict().items()):
            if "text_model" in name or "text_projection" in name:
                digest.update(f"{name} {list(weight.shape)}".encode())
                digest.update(weight.contiguous().view(-1).numpy())
        return digest.digest()


def _settings(backbone: nn.Module) -> dict[str, Any]:
    """Returns the parts of a model's configurations that may change a text's features."""
    adapters = {name: adapter.to_dict() for name, adapter in getattr(backbone, "peft_config", {}).items()}
    configs = {"text": backbone.config.text_config.to_dict(), **adapters}
    relevant = {name: {key: x for key, x in values.items() if key not in ORIGIN} for name, values in configs.items()}
    return {**relevant, "active": getattr(backbone, "active_adapter", None)}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)


logger = logging.get_logger(__name__)

# `Trainer.push_to_hub` skips names that begin with an underscore.
FOLDER = "_reference_text"
# Texts per encoding batch and process if mini_batch_size is not set
BATCH = 256
# Number of batches over which texts are sorted by length, so few tokens are padding
SORTED_BATCHES = 32


class ReferenceText:
    """Files with a frozen text tower's features for the texts of datasets.

    A file is a float32 NumPy array `[rows, 1 + K, D]`: for each row the features of the caption and of its first
    `num_negatives` negatives, zeros for a masked negative. Its name identifies model, tokenizer and texts, so an
    existing file is reused, for example by a resumed run.

    All processes must make the same calls: they share the encoding, and one process per machine writes.
    """

    def __init__(self, frozen: FrozenText, args: CompositionalConfig) -> None:
        self.frozen = frozen
        self.args = args
        self.folder = Path(args.output_dir) / FOLDER
        self._names: WeakKeyDictionary[TrainingRows, str] = WeakKeyDictionary()

    def feature_file(self, rows: TrainingRows) -> Path:
        """Returns the file of a dataset, creating it if any machine does not have it yet."""
        texts = None if rows in self._names else self._texts(rows)
        if texts is not None:
            self._names[rows] = self._name(texts)
        path = self.folder / f"{self._names[rows]}.npy"
        # Machines may have different files, but all processes must take the same branch: encoding needs all of them.
        states = gather_objects((path.name, path.is_file()))
        if len({name for name, _ in states}) > 1:
            raise ValueError(
                "the processes have different texts or weights. Pass the same dataset and model to all of them; call "
                "transformers.set_seed before creating an adapter."
            )
        if not all(exists for _, exists in states):
            self._create(path, texts or self._texts(rows))
        return path

    def _texts(self, rows: TrainingRows) -> list[list[str]]:
        columns = [rows.batch_column(name) for name in ("caption", "negative_captions")]
        return [
            texts_of_row({"caption": caption, "negative_captions": negatives}, index, self.args.num_negatives)
            for index, (caption, negatives) in enumerate(zip(*columns, strict=True))
        ]

    def _name(self, texts: list[list[str]]) -> str:
        digest = hashlib.sha256(self.frozen.fingerprint)
        for row in texts:
            digest.update(json.dumps(row).encode())
        return digest.hexdigest()[:32]

    def _create(self, path: Path, texts: list[list[str]]) -> None:
        features = self._features([text for row in texts for text in row])
        failure = self._write(path, features, len(texts)) if self.args.local_process_index == 0 else None
        for _ in features:  # the other processes wait for this process's part
            pass
        failures = [message for message in gather_objects(None if failure is None else str(failure)) if message]
        if failures:
            raise OSError(f"the initial text features could not be written: {failures[0]}") from failure

    def _write(self, path: Path, features: Iterator[NDArray[np.float32]], rows: int) -> OSError | None:
        """Writes a file atomically: it exists completely or not at all."""
        try:
            remove_unfinished(path.parent, f"*.{host()}-*")
            # Does not use a memory map, which kills the process if the disk is full.
            with replacing(path) as part, part.open("wb") as stream:
                for number, part_features in enumerate(features):
                    if number == 0:
                        shape = (rows, 1 + self.args.num_negatives, part_features.shape[1])
                        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                        np.lib.format.write_array_header_1_0(stream, header)
                        _log_file(path, shape)
                    stream.write(part_features.astype("<f4").tobytes())
        except OSError as error:
            return error
        return None

    def _features(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yields features `[m, D]` of all texts in order, part by part. Every process must consume all of them."""
        batch_size = (self.args.mini_batch_size or BATCH) * world_size()
        hidden = self.args.disable_tqdm or rank() > 0
        bar = tqdm(total=len(texts), desc="reference texts", disable=hidden, unit="text", leave=False)
        try:
            self.frozen.to(self.args.device)
            for start in range(0, len(texts), SORTED_BATCHES * batch_size):
                part = texts[start : start + SORTED_BATCHES * batch_size]
                order = sorted(range(len(part)), key=lambda place: len(part[place]))
                batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
                features = np.concatenate([self._encode([part[place] for place in batch]) for batch in batches])
                bar.update(len(part))
                # Restore the dataset's order.
                yield features[np.argsort(order)]
        finally:
            self.frozen.to("cpu")
            bar.close()

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Encodes a batch: every process encodes an equal part and gets all features. The last part is filled up."""
        size = -(-len(texts) // world_size())
        # The last text fills up the last parts, because equal parts need no exchange of sizes.
        own = [texts[min(place, len(texts) - 1)] for place in range(rank() * size, (rank() + 1) * size)]
        (features,) = gather(self.frozen.encode(own), sizes=[size] * world_size())
        # An empty text is a masked negative.
        exists = torch.tensor([[bool(text)] for text in texts], device=features.device)
        features = features[: len(texts)] * exists
        if not torch.isfinite(features).all():
            raise ValueError("the initial text features are NaN or infinite: the model's weights are broken.")
        return features.cpu().numpy()


class WithReferenceText:
    """A collator that adds the reference features of the rows, `[B, D]` and `[B, K, D]`."""

    def __init__(self, collator: Any, path: Path) -> None:
        self.collator = collator
        self.path = path
        self._table: NDArray[np.float32] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A worker opens the file itself, because pickling a memory map would send the whole array.
        return {**self.__dict__, "_table": None}

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        batch = self.collator(rows)
        if "row" not in batch:  # the trainer rejects it
            return batch
        if self._table is None:
            self._table = np.load(self.path, mmap_mode="r", allow_pickle=False)
        features = torch.from_numpy(self._table[batch["row"].numpy()])
        return {**batch, "reference_text_embeds": features[:, 0], "reference_negative_text_embeds": features[:, 1:]}


def _log_file(path: Path, shape: tuple[int, int, int]) -> None:
    if rank() > 0:
        return
    rows, texts, width = shape
    logger.warning(
        f"The initial model encodes {rows * texts:,} texts of {rows:,} rows once; their features take "
        f"{rows * texts * width * 4 / 1e6:,.1f} MB in {path}."
    )
