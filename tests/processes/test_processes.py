"""Forked processes run and end as those that `python` starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import processes

CODE = (
    "import os, sys; print(__name__, sys.argv[1:], os.getcwd(), os.environ.get('MINE')); print('e', file=sys.stderr)"
)


def run_both(words: list[str], **options) -> list[tuple[int, str, str]]:
    """Status, output and errors of a fork and of an interpreter of its own."""
    fork = processes.run(words, **options)
    own = subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)
    return [(process.returncode, process.stdout, process.stderr) for process in (fork, own)]


@pytest.mark.parametrize("form", ["-c", "script", "-m"])
def test_arguments_folder_environment_and_output_are_those_of_an_interpreter(form, tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    words = {"-c": ["-c", CODE], "script": ["mine.py"], "-m": ["-m", "mine"]}[form]
    fork, own = run_both([*words, "a", "--b"], cwd=tmp_path, env=os.environ | {"MINE": "1"})
    assert fork == own == (0, f"__main__ ['a', '--b'] {tmp_path} 1\n", "e\n")


def test_outputs_are_read_at_once_and_kept_after_a_timeout(tmp_path):
    end = repr(str(tmp_path / "end"))
    waits = f"import os, time\nprint('first', flush=True)\nwhile not os.path.exists({end}): time.sleep(0.01)"
    fills = f"print('x' * 1_000_000)\nopen({end}, 'w')"
    started = [processes.start(["-c", waits])]
    with pytest.raises(subprocess.TimeoutExpired):
        processes.outputs(started, 0.5)
    first, second = processes.outputs([*started, processes.start(["-c", fills])], 60)
    assert first == "first\n" and len(second) == 1_000_001


@pytest.mark.parametrize("end", ["sys.exit(3)", "sys.exit('no')", "{}['key']", "atexit.register(print, 'end')"])
def test_the_end_is_that_of_an_interpreter(end, tmp_path):
    fork, own = run_both(["-c", f"import atexit, sys; {end}"], cwd=tmp_path)
    assert fork[:2] == own[:2] and fork[2].splitlines()[-1:] == own[2].splitlines()[-1:]


def test_a_process_can_be_killed_and_waited_for():
    process = processes.start(["-c", "import time; print('here', flush=True); time.sleep(60)"])
    assert process.stdout.readline() == "here\n" and process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(10) == process.poll() == -9


def test_a_group_has_the_variables_of_torchrun():
    code = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['MASTER_PORT'])"
    said = [output.split() for output in processes.outputs(processes.launch(2, ["-c", code], env=os.environ), 60)]
    assert [words[:2] for words in said] == [["0", "2"], ["1", "2"]] and said[0][2] == said[1][2]


@pytest.mark.parametrize("end", ["sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_what_launchers_start_is_forked_and_ends_as_an_interpreter_does(end, tmp_path):
    said = [
        subprocess.run([program, "-u", "-c", f"{CODE}; {end}", "a"], capture_output=True, text=True, cwd=tmp_path)
        for program in (processes.interpreter(), sys.executable)
    ]
    fork, own = ((process.returncode, process.stdout, process.stderr) for process in said)
    assert fork == own == (3 if "exit" in end else -9, f"__main__ ['a'] {tmp_path} None\n", "e\n")


def test_a_signal_to_what_a_launcher_started_ends_the_fork():
    code = "import time; print('here', flush=True); time.sleep(60)"
    with subprocess.Popen([processes.interpreter(), "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "here\n"
        process.terminate()
        assert process.wait(10) == -15


def test_a_process_starts_others_by_the_interpreter_of_its_environment():
    done = processes.run(["-c", "import sys; print(sys.executable)"], env=os.environ | {"PYTHON_EXEC": "/mine"})
    assert done.stdout == "/mine\n"
