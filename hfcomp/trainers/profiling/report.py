"""A profile as a report: the phases of a step, and how much of the device's arithmetic they use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.trainers.profiling.flops import peak_flops
from hfcomp.trainers.profiling.phases import PHASES, PhaseTime

PROFILE_FILE, TRACE_FILE = "profile.md", "profile_trace.json.gz"
WHAT = {
    "data": "waiting for the batch, and moving it to the device",
    "encode": "forward pass of the towers",
    "loss": "gathering over processes, and the objective",
    "backward": "backward pass, with recomputed activations if any",
    "optimiser": "gradient norm, clipping, the update",
}


@dataclass(frozen=True)
class Profile:
    """What was measured.

    Attributes:
        times: seconds of each phase, summed over the steps.
        steps: that were timed.
        pairs: rows of a step, over all processes.
        processes: of the run; the others are not measured.
        flops: counted in one further step of this process, by phase; empty where none was counted.
        model_flops: of these those that the model needs.
        device: its name, or `cpu`.
        half: whether the towers compute in half precision.
    """

    times: Mapping[str, PhaseTime]
    steps: int
    pairs: int
    processes: int
    flops: Mapping[str, int]
    model_flops: int
    device: str
    half: bool

    @property
    def on_device(self) -> bool:
        """Whether the device's own times are known."""
        return any(time.device is not None for time in self.times.values())

    @property
    def seconds(self) -> float:
        """Of a step, of the device where its times are known."""
        return sum(self._of_phase(time) for time in self.times.values()) / self.steps

    def share(self, phase: str) -> float:
        """Of a step that a phase takes, 0 to 1."""
        return self._of_phase(self.times[phase]) / (self.seconds * self.steps)

    def _of_phase(self, time: PhaseTime) -> float:
        return (time.device or 0.0) if self.on_device else time.wall


def profile_report(profile: Profile) -> Report:
    """The report of a profile."""
    lines = [
        f"{profile.steps} steps of {profile.pairs:,} pairs on {profile.device}, after those in which libraries start",
        f"{profile.pairs / profile.seconds:,.1f} pairs per second",
        *_utilisation(profile),
        f"operators and their times: {TRACE_FILE}, for https://ui.perfetto.dev",
    ]
    if profile.processes > 1:
        lines.append(f"measured on the main process alone, of {profile.processes}")
    return Report("Where the time of a step goes", sections=[Section("", [_phases(profile), Lines(lines)])])


def _phases(profile: Profile) -> Table:
    header = ["phase", "what", "wall ms", "CPU ms", *(["device ms"] if profile.on_device else []), "share", "FLOPs"]
    rows = []
    for phase in PHASES:
        time = profile.times[phase]
        values = [time.wall, time.cpu, *([time.device or 0.0] if profile.on_device else [])]
        flops = amount(profile.flops[phase]) if profile.flops else ""
        milliseconds = [f"{1000 * value / profile.steps:,.1f}" for value in values]
        rows.append([phase, WHAT[phase], *milliseconds, f"{profile.share(phase):.1%}", flops])
    title = "Milliseconds of a step" + (", shares of the device's time" if profile.on_device else "")
    return Table(title, header, rows, labels=2)


def _utilisation(profile: Profile) -> list[str]:
    if not profile.flops:
        return ["too few steps to count FLOPs"]
    rate = profile.model_flops / profile.seconds
    spent = f"{amount(profile.model_flops)}FLOPs in a step, {amount(rate)}FLOP/s"
    peak = peak_flops(profile.device)
    if peak is None:
        return [f"{spent}; the peak of this device is not in hfcomp's table"]
    if not profile.half:
        return [f"{spent}; the table of peaks is of half precision, and this run computes in fp32"]
    return [f"{spent}: {rate / peak:.1%} of the {amount(peak)}FLOP/s of its data sheet (model FLOPs utilisation)"]


def amount(value: float) -> str:
    """A number with three digits and its prefix, as `4.41 T`; the unit is to follow."""
    power = next((power for power in (4, 3, 2, 1) if value >= 1000**power), 0)
    return f"{value / 1000**power:.3g} {' kMGT'[power].strip()}"
