"""What is read from the Hub and from authors' repositories, and why it cannot be."""

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
from hfcomp.writing import replacing

LONGEST_REASON = 120


def downloaded(web: str, names: Sequence[str]) -> Path:
    """Files of a repository at a commit, in a folder of the download cache.

    Raises:
        Unavailable: when they cannot be reached.
    """
    try:
        manager = DownloadManager(download_config=DownloadConfig(disable_tqdm=True))
        found = manager.download({name: f"{web}/{name}" for name in names})
    except Exception as error:  # as in hub_rows
        raise Unavailable(_unreachable(web, error), "") from error
    # Files in the download cache are named by hashes. Links give them their names back.
    first = Path(next(iter(found.values())))
    folder = first.parent / f"hfcomp-{first.name[:16]}"
    for name, file in found.items():
        # Several processes may do this at once.
        with replacing(folder / name) as link:
            link.symlink_to(file)
    return folder


def hub_rows(repo: str, options: Mapping[str, Any], revision: str | None) -> tuple[Dataset, Origin]:
    """Rows of a dataset on the Hub, images undecoded, and the commit that they were read at.

    Raises:
        Unavailable: when it is gated, gone, a loading script, or there is no network.
    """
    # Resolved first: all files are read at this commit, and results name it.
    commit = revision or _newest(repo)
    try:
        rows = load_dataset(repo, **options, revision=commit)
    except DatasetNotFoundError as error:
        gone = f"{repo} is not on the Hub at this revision, or private."
        raise Unavailable(_gate_reason(repo) if "gated" in str(error) else gone, "") from error
    except Exception as error:  # requests fail in many classes of several libraries; the reason says which it was
        if "scripts are no longer supported" in str(error):
            raise Unavailable(f"{repo} is a loading script, which `datasets` does not run.", "") from error
        raise Unavailable(_unreachable(repo, error), "") from error
    return undecoded(rows), Origin(repo, commit or read_commit(rows))


def _newest(repo: str) -> str | None:
    """The commit of the main branch now; without a network, `datasets` may still have rows of before."""
    try:
        return HfApi().dataset_info(repo).sha
    except GatedRepoError as error:
        raise Unavailable(_gate_reason(repo), "") from error
    except Exception:  # any failed request: load_dataset then reports it or reads its cache
        return None


def _unreachable(place: str, error: Exception) -> str:
    said = textwrap.shorten(str(error), LONGEST_REASON, placeholder=" ...")
    return f"{place} cannot be read ({type(error).__name__}{': ' * bool(said)}{said})."


def _gate_reason(repo: str) -> str:
    return f"{repo} is gated: accept its terms at https://huggingface.co/datasets/{repo} and run `hf auth login`."


def repository(repo: str, patterns: Sequence[str], revision: str | None) -> Path:
    """A folder with some files of a dataset on the Hub; the download cache names it by the commit.

    Raises:
        Unavailable: when it is gated, gone, or there is no network.
    """
    try:
        return Path(snapshot_download(repo, repo_type="dataset", revision=revision, allow_patterns=list(patterns)))
    except GatedRepoError as error:
        raise Unavailable(_gate_reason(repo), "") from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise Unavailable(f"{repo} is not on the Hub at this revision, or private.", "") from error
    except Exception as error:  # as in hub_rows
        raise Unavailable(_unreachable(repo, error), "") from error
