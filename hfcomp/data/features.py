"""The Arrow types of columns that hold lists, for sets that are written or joined: an empty list has none."""

from __future__ import annotations

from datasets import List, Value

NEGATIVE_FEATURES = {
    "negative_captions": List(Value("string")),
    "negative_kinds": List(Value("string")),
    "negative_keywords": List(Value("string")),
    "negative_categories": List(Value("string")),
    "negative_rated_words": List(Value("string")),
    "negative_concreteness": List(Value("float64")),
    "negative_spans": List(List(List(Value("int32")))),
}
CONCEPT_FEATURES = {
    "concepts": List(Value("string")),
    "concept_spans": List(List(List(Value("int32")))),
}
