"""Options that evaluate and compare share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from hfcomp.options import Options, Size
from hfcomp.reporting.pages.items import DEFAULT_PAGE, PageOptions

Tie = Literal["wrong", "half", "win"]
"""The names in `hfcomp.statistics.summary.TIE_RULES`, which takes long to import."""


@dataclass(kw_only=True)
class ReportPageOptions(Options):
    """Page of the report."""

    page_items: Annotated[Size, "Items to look at in report.html; 0 for none."] = DEFAULT_PAGE.items
    no_thumbnails: Annotated[bool, "No pictures of these items."] = False
    no_page: Annotated[bool, "No report.html."] = False

    def page(self) -> PageOptions | None:
        """What goes into the page; None for no page."""
        return None if self.no_page else PageOptions(items=self.page_items, thumbnails=not self.no_thumbnails)
