"""The cells of `make test-numerics` are what they say."""

import os

import torch

from tests import conftest, numerics


def test_this_process_has_the_threads_and_the_capability_that_were_asked_for():
    assert torch.get_num_threads() == conftest.THREADS == int(os.environ.get("HFCOMP_TEST_THREADS", "1"))
    capability = torch.backends.cpu.get_cpu_capability().lower()
    assert capability == os.environ.get("ATEN_CPU_CAPABILITY", capability)
    assert numerics.header() == f"torch: {capability}, {conftest.THREADS} thread{'s' * (conftest.THREADS > 1)}"


def test_a_capability_that_the_cpu_lacks_is_left_out_with_its_reason(monkeypatch):
    of = {}
    for own in ("DEFAULT", "AVX2", "AVX512", "SVE256"):
        answer = type("Done", (), {"stdout": f"{own}\n"})
        monkeypatch.setattr(numerics.subprocess, "run", lambda *args, answer=answer, **settings: answer)
        of[own] = numerics.capabilities()
    assert of["DEFAULT"] == {"default": "", "avx2": "this CPU has default", "avx512": "this CPU has default"}
    assert of["AVX2"] == {"default": "", "avx2": "", "avx512": "this CPU has avx2"}
    assert of["AVX512"] == {"default": "", "avx2": "", "avx512": ""}
    assert of["SVE256"] == {
        "default": "", "avx2": "this CPU has sve256", "avx512": "this CPU has sve256", "sve256": ""
    }  # fmt: skip


def test_a_cell_fails_by_its_tests_and_by_running_on_something_else(monkeypatch):
    def cell(output, status=0):
        answer = type("Done", (), {"stdout": output, "returncode": status})
        monkeypatch.setattr(numerics.subprocess, "run", lambda *args, **settings: answer)
        return numerics.run("avx2", 2, [])[:2]

    assert cell("torch: avx2, 2 threads\n== 7 passed in 1s ==\n") == (True, "7 passed in 1s")
    assert cell("torch: avx2, 2 threads\n== 1 failed, 6 passed in 1s ==\n", 1) == (False, "1 failed, 6 passed in 1s")
    for other in ("torch: avx512, 2 threads", "torch: avx2, 1 thread"):
        assert cell(f"{other}\n== 7 passed ==\n") == (
            False, "pytest's head does not say 'torch: avx2, 2 threads' (with -q it says nothing)"
        )  # fmt: skip


def test_the_tests_of_the_cells_are_there():
    assert all((numerics.ROOT / path).exists() for path in numerics.TESTS)
