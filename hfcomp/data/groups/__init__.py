"""Batches of groups of pairs that share a concept, and what they were made of (CLEAR GLASS)."""

from hfcomp.data.groups.order import GROUP_COLUMNS, BatchGroups, GroupOrder, Groups, group_mask, rows_per_process
from hfcomp.data.groups.report import GroupReport

__all__ = ["GROUP_COLUMNS", "BatchGroups", "GroupOrder", "GroupReport", "Groups", "group_mask", "rows_per_process"]
