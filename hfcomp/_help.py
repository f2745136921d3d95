"""`help()` of classes: two screens of what they add, not forty of the parents in transformers and torch."""

from __future__ import annotations

import dataclasses
from abc import ABCMeta
from inspect import Parameter, Signature
from typing import Any


class OwnHelp(ABCMeta):
    """Metaclass that lets `help()` and `dir()` of a class, not of its instances, show what the class itself adds.

    What overrides a method of transformers or torch is described there, but for `forward`. The signature of a config
    names the class's own fields, with their defaults; all others of the parents are taken, too.
    """

    def __dir__(cls) -> list[str]:
        others = {name for base in cls.__mro__ if not base.__module__.startswith("hfcomp.") for name in vars(base)}
        fields = getattr(cls, "__dataclass_fields__", {})
        return [
            name
            for name, value in vars(cls).items()
            if not name.startswith("_")
            and name not in fields
            and (name not in others or name == "forward")
            and not _is_elsewhere(name, value)
        ]

    @property
    def __signature__(cls) -> Signature:
        if not dataclasses.is_dataclass(cls):
            raise AttributeError("__signature__")  # that of __init__
        every, own = dataclasses.fields(cls), cls.__dict__.get("__annotations__", {})
        parameters = [
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=_default(field))
            for field in every
            if field.name in own
        ]
        further = [Parameter("arguments", Parameter.VAR_KEYWORD)] if len(parameters) < len(every) else []
        return Signature([*parameters, *further])


def own_help(parent: type) -> type:
    """[`OwnHelp`] for a class with such a parent, which may have a metaclass itself: a release may bring one."""
    theirs = type(parent)
    return OwnHelp if issubclass(OwnHelp, theirs) else type(OwnHelp.__name__, (OwnHelp, theirs), {})


def _is_elsewhere(name: str, value: Any) -> bool:
    """Whether an attribute is a class, or a function of another name, which has its own help."""
    return isinstance(value, type) or (isinstance(value, staticmethod) and value.__name__ != name)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return Parameter.empty if field.default is dataclasses.MISSING else field.default
