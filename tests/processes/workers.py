"""Processes of `multiprocessing` that begin with the libraries loaded."""

from __future__ import annotations

import multiprocessing

# all at once: a session of pytest has one such server, and what it loads is decided when it starts
LOADED = (
    *("hfcomp.factory.build", "hfcomp.factory.runner", "hfcomp.factory.images.stage", "hfcomp.data.loading"),
    *("hfcomp.factory.concepts", "hfcomp.experiments.program", "hfcomp.sandbox", "matplotlib.figure"),
    *("tests.factory.parsing_server", "openai", "sklearn.feature_extraction.text"),
    *("diffusers.pipelines.auto_pipeline", "transformers.trainer"),
    "diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl_img2img",
    *("pytest", "tests.processes.frozen"),  # what tests in these modules import, and last what keeps all this shared
)


def forkserver() -> multiprocessing.context.ForkServerContext:
    """A context whose processes are forked from one that has loaded what the tests' processes need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*LOADED])
    return context
