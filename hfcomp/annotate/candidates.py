"""Candidates for annotators: images with a keyword in a caption and a license that allows adaptation."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from tqdm.auto import tqdm

from hfcomp.annotate.captions import editable_keywords
from hfcomp.annotate.options import CandidateOptions
from hfcomp.data.annotations.entries import Item
from hfcomp.data.annotations.project import Project
from hfcomp.data.image_ids import IMAGE_ID, image_key
from hfcomp.data.images import decode_image
from hfcomp.data.loading import undecoded
from hfcomp.data.publishing import LICENSE, allows_adaptation, stated_license, without_local_paths
from hfcomp.data.urls import UrlAccess, current_access, open_named, url_access
from hfcomp.factory.magic.image_rows import CAPTION, image_rows
from hfcomp.factory.sources import check_local_files, read_captioned_rows
from hfcomp.parsing.captions import caption_problem

NO_KEYWORD, UNREADABLE = "no caption with a replaceable keyword", "an unreadable image"
FORBIDDEN, UNKNOWN = "a license that forbids adaptation", "an unknown license"
OTHER_ITEM = "the same id as an earlier candidate, but another image or other captions"
_IMAGE = "image"
# First bytes and extensions of the formats that are copied unchanged, because every browser shows them.
_STARTS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png"}


def add_candidates(
    project: Project, options: CandidateOptions, *, log: Callable[[str], None], progress: bool = False
) -> int:
    """Adds candidates from a source to a project in a random order, and returns the number of new items.

    An item is an image with those of its captions that contain a keyword of one concept, in any case and number. One
    image may give several items. The order depends on the seed and the image's id (or its captions, without an id),
    not on the order of the rows. Candidates from another source are appended to the existing ones. Image files are
    copied byte for byte. Skipped images are counted in the log by reason.
    """
    with url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout)):
        source = _Source(project, options, log)
        number = project.decisions.add_items(source.items(progress))
    for reason, count in source.skipped.most_common():
        log(f"{count:,} images skipped: {reason}")
    counts = {name: sum(project.decisions.counts(concept=name).values()) for name in options.concepts}
    if not any(counts.values()):
        raise ValueError(
            f"{options.source} has no image that can be annotated; the reasons are listed above. Choose another "
            "source or other --concepts, or pass --any_license if you will not publish the dataset."
        )
    log(f"{number:,} new items; total per concept: {', '.join(f'{name} {count:,}' for name, count in counts.items())}")
    return number


class _Source:
    """Reads the rows of a source and turns them into items."""

    def __init__(self, project: Project, options: CandidateOptions, log: Callable[[str], None]) -> None:
        self._project, self._options = project, options
        needed = {"needed": [_IMAGE], "needed_by": "hfcomp annotate", "always_kept": [IMAGE_ID, LICENSE]}
        self._rows = undecoded(read_captioned_rows(options, log, is_old=lambda column: False, **needed))
        check_local_files(self._rows, [_IMAGE], options.source, allow_outside=options.allow_outside_files, log=log)
        self._stated = None if LICENSE in self._rows.column_names else stated_license(options.source)
        self._known = {item.id: item for item in project.decisions.items()}
        self.skipped: Counter[str] = Counter()

    def items(self, progress: bool) -> Iterator[Item]:
        images = image_rows(self._rows)
        names, captions = images.images[IMAGE_ID], images.images[CAPTION]
        first = {int(image): row for row, image in reversed([*enumerate(images.image_of)])}
        ids = self._rows[IMAGE_ID] if IMAGE_ID in self._rows.column_names else [None] * len(self._rows)
        has_id = [image_key(value, row) >= 0 for row, value in enumerate(ids)]
        keys = [name if has_id[first[image]] else str(captions[image]) for image, name in enumerate(names)]
        # Sort by a hash of seed and image, so the order does not depend on the order of the rows and further sources
        # can be added.
        order = sorted(range(len(keys)), key=lambda image: _order_key(self._options.seed, keys[image]))
        for image in tqdm(order, desc="candidates", unit="images", disable=not progress):
            name = names[image] if has_id[first[image]] else None
            try:
                yield from self._image_items(name, first[image], captions[image])
            except _SkippedError as reason:
                self.skipped[str(reason)] += 1

    def _image_items(self, name: str | None, row: int, captions: Sequence[str]) -> Iterator[Item]:
        pairs_by_concept = {concept: _caption_keywords(captions, concept) for concept in self._options.concepts}
        # Check this before reading the image, which is the most expensive step.
        if not any(pairs_by_concept.values()):
            raise _SkippedError(NO_KEYWORD)
        content = self._rows[row]
        license = self._stated if self._stated is not None else content.get(LICENSE)
        if not self._options.any_license and not allows_adaptation(license):
            raise _SkippedError(UNKNOWN if allows_adaptation(license) is None else FORBIDDEN)
        file = self._copy(content[_IMAGE], f"column '{_IMAGE}', row {row}")
        name = name or PurePosixPath(file).stem
        facts = {IMAGE_ID: name, LICENSE: license} | _plain_facts(content)
        items = []
        for concept, pairs in pairs_by_concept.items():
            if pairs:
                texts, keywords = zip(*pairs, strict=True)
                items.append(Item(f"{name}/{concept}", file, concept, texts, keywords, facts))
        for item in items:
            # An earlier item with this id may have been annotated already, so keep it and skip the new one.
            known = self._known.get(item.id)
            if known and (known.image, known.captions) != (item.image, item.captions):
                raise _SkippedError(OTHER_ITEM)
        yield from (item for item in items if item.id not in self._known)

    def _copy(self, image: Any, where: str) -> str:
        """Copies an image into the project and returns its file: unchanged if every browser shows it, else as PNG."""
        try:
            content = image["bytes"]
            if content is None:
                with open_named(image["path"], where, current_access()) as stream:
                    content = stream.read()
            picture = decode_image(content, where=where)
        except (OSError, ValueError, TypeError) as error:
            raise _SkippedError(UNREADABLE) from error
        # Copy such files byte for byte: encoding a JPEG again would change its pixels.
        ending = next((ending for start, ending in _STARTS.items() if content.startswith(start)), None)
        return self._project.save_bytes(content, ending) if ending else self._project.save(picture)


class _SkippedError(Exception):
    """The image is skipped; the message gives the reason."""


def _caption_keywords(captions: Sequence[str], concept: str) -> list[tuple[str, str]]:
    """Returns each caption that has a replaceable keyword, with the first such keyword."""
    pairs = []
    for caption in dict.fromkeys(captions):
        matches = [] if caption_problem(caption) else editable_keywords(caption, concept)
        pairs += [(caption, matches[0].keyword)] if matches else []
    return pairs


def _plain_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the texts and numbers of a row, such as the source and the author of its image."""
    facts = {name: value for name, value in row.items() if name not in (_IMAGE, CAPTION, IMAGE_ID, LICENSE)}
    return without_local_paths({name: value for name, value in facts.items() if _is_plain(value)})


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _order_key(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode("utf-8", "surrogatepass")).digest()
