"""The values that a search may try for a field: numbers between two ends, or one of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RANGE_KEYS = ("low", "high", "log", "int")


@dataclass(frozen=True)
class NumberRange:
    """Numbers between two ends, both included.

    Attributes:
        low: the least.
        high: the greatest.
        log: drawn evenly in the logarithm.
        whole: whole numbers only.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def suggest(self, trial: Any, name: str) -> float:
        """The value of an Optuna trial."""
        ask = trial.suggest_int if self.whole else trial.suggest_float
        return ask(name, self.low, self.high, log=self.log)

    def __contains__(self, value: Any) -> bool:
        if type(value) not in (int, float) or not self.low <= value <= self.high:
            return False
        return not self.whole or value == int(value)

    def ends(self) -> list[float]:
        """Values that stand for all in a check before anything is trained."""
        return [self.low, self.high]

    def __str__(self) -> str:
        further = [name for name, on in (("log", self.log), ("whole", self.whole)) if on]
        return ", ".join([f"{self.low:g} to {self.high:g}", *further])


@dataclass(frozen=True)
class Choices:
    """One of several values.

    Attributes:
        values: names, numbers, switches or nothing.
    """

    values: tuple[Any, ...]

    def suggest(self, trial: Any, name: str) -> Any:
        """The value of an Optuna trial."""
        return trial.suggest_categorical(name, list(self.values))

    def __contains__(self, value: Any) -> bool:
        return any(type(value) is type(one) and value == one for one in self.values)

    def ends(self) -> list[Any]:
        """All values."""
        return list(self.values)

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))


Range = NumberRange | Choices


def read_range(found: Any, where: str) -> Range:
    """A range as YAML has it: `{low, high}`, with `log: true` or `int: true` where wanted, or `{choices: [...]}`.

    Raises:
        ValueError: naming the place, what was found and what is expected.
    """
    if isinstance(found, dict) and found.keys() == {"choices"}:
        return _choices(found["choices"], where)
    if not isinstance(found, dict) or not {"low", "high"} <= found.keys() <= set(RANGE_KEYS):
        raise ValueError(
            f"{where}: found {found!r}, expected {{low: 1e-5, high: 1e-2}}, with log: true or int: true where wanted, "
            "or {choices: [...]}."
        )
    switches = {key: found.get(key, False) for key in ("log", "int")}
    for key, on in switches.items():
        if not isinstance(on, bool):
            raise ValueError(f"{where}: {key}: found {on!r}, expected true or false.")
    read = _whole if switches["int"] else _number
    low, high = (read(found[key], f"{where}: {key}") for key in ("low", "high"))
    if not low < high:
        raise ValueError(f"{where}: low {low:g} is not below high {high:g}.")
    if switches["log"] and low <= 0:
        raise ValueError(f"{where}: low {low:g}: a logarithmic range begins above 0.")
    return NumberRange(low, high, log=switches["log"], whole=switches["int"])


def _choices(found: Any, where: str) -> Choices:
    if not isinstance(found, list) or len(found) < 2 or not all(_is_plain(value) for value in found):
        raise ValueError(f"{where}: choices: found {found!r}, expected at least two names, numbers or switches.")
    distinct = {(type(value), value) for value in found}
    if len(distinct) < len(found):
        raise ValueError(f"{where}: choices: found {found!r}, one of them twice.")
    return Choices(tuple(found))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _number(found: Any, where: str) -> float:
    """YAML reads 1e-10 as a text."""
    try:
        number = float("nan") if isinstance(found, bool) else float(found)
    except (TypeError, ValueError):
        number = float("nan")
    if not abs(number) < float("inf"):
        raise ValueError(f"{where}: found {found!r}, expected a number.")
    return number


def _whole(found: Any, where: str) -> int:
    if type(found) is not int:
        raise ValueError(f"{where}: found {found!r}, expected a whole number.")
    return found
