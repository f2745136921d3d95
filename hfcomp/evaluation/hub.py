"""Reads data from the Hub and from authors' repositories, or explains why it cannot be read."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, DownloadConfig, DownloadManager, load_dataset
from datasets.exceptions import DatasetNotFoundError
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from hfcomp.data.loading import read_commit, undecoded
from hfcomp.evaluation.spec import Origin, Unavailable
from hfcomp.platforms import link_or_copy
from hfcomp.writing import replacing

LONGEST_REASON = 120


def download_files(web: str, names: Sequence[str]) -> Path:
    """Downloads files of a repository at a commit into a folder of the download cache.

    Raises:
        Unavailable: If they cannot be reached.
    """
    try:
        manager = DownloadManager(download_config=DownloadConfig(disable_tqdm=True))
        files = manager.download({name: f"{web}/{name}" for name in names})
    except Exception as error:  # as in hub_rows
        raise Unavailable(_unreachable(web, error), "") from error
    # The download cache names files by hashes. Links give them their names back.
    first = Path(next(iter(files.values())))
    folder = first.parent / f"hfcomp-{first.name[:16]}"
    for name, file in files.items():
        # Several processes may do this at the same time.
        with replacing(folder / name) as link:
            link_or_copy(file, link)
    return folder


def hub_rows(repo: str, options: Mapping[str, Any], revision: str | None) -> tuple[Dataset, Origin]:
    """Reads a Hub dataset's rows with undecoded images, and the commit at which they were read.

    Raises:
        Unavailable: If the dataset is gated, gone or a loading script, or there is no network.
    """
    # Resolved first, because all files are read at this commit and results record it.
    commit = revision or _newest(repo)
    try:
        rows = load_dataset(repo, **options, revision=commit)
    except DatasetNotFoundError as error:
        gone = f"{repo} is not on the Hub at this revision, or private."
        raise Unavailable(_gate_reason(repo) if "gated" in str(error) else gone, "") from error
    except Exception as error:  # several libraries raise many classes for a failed request; the reason names the class
        if "scripts are no longer supported" in str(error):
            raise Unavailable(f"{repo} is a loading script, which `datasets` does not run.", "") from error
        raise Unavailable(_unreachable(repo, error), "") from error
    return undecoded(rows), Origin(repo, commit or read_commit(rows))


def _newest(repo: str) -> str | None:
    """The main branch's current commit. None without a network, when `datasets` may still have cached rows."""
    try:
        return HfApi().dataset_info(repo).sha
    except GatedRepoError as error:
        raise Unavailable(_gate_reason(repo), "") from error
    except Exception:  # after any failed request, load_dataset reports it or reads its cache
        return None


def _unreachable(place: str, error: Exception) -> str:
    reason = textwrap.shorten(str(error), LONGEST_REASON, placeholder=" ...")
    return f"{place} cannot be read ({type(error).__name__}{': ' * bool(reason)}{reason})."


def _gate_reason(repo: str) -> str:
    return f"{repo} is gated: accept its terms at https://huggingface.co/datasets/{repo} and run `hf auth login`."


def repository(repo: str, patterns: Sequence[str], revision: str | None) -> Path:
    """Downloads some files of a Hub dataset. The download cache names the returned folder by the commit.

    Raises:
        Unavailable: If the dataset is gated or gone, or there is no network.
    """
    try:
        return Path(snapshot_download(repo, repo_type="dataset", revision=revision, allow_patterns=list(patterns)))
    except GatedRepoError as error:
        raise Unavailable(_gate_reason(repo), "") from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise Unavailable(f"{repo} is not on the Hub at this revision, or private.", "") from error
    except Exception as error:  # as in hub_rows
        raise Unavailable(_unreachable(repo, error), "") from error
