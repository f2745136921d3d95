"""The client of an endpoint: what it sends, what it believes, and what it does when the server fails."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections import Counter
from dataclasses import replace
from urllib.parse import quote

import pytest

from hfcomp.factory.writers import backoff
from hfcomp.factory.writers import endpoint as module
from hfcomp.factory.writers.answer_cache import AnswerCache, CachedWriter
from hfcomp.factory.writers.endpoint import KEY_VARIABLE, EndpointError, EndpointWriter
from hfcomp.factory.writers.requests import Reply, Request, content_hash
from tests.factory.writers.endpoint import Answer, closed_address, completion, right, serving, text

pytest.importorskip("openai")
REQUEST = Request("Input: a dog\nKeyword: dog\nOutput:", seed=7, temperature=0.5, max_tokens=99)


def client(base_url: str, **settings) -> EndpointWriter:
    return EndpointWriter(base_url, **{"model": "m", "retries": 0, "timeout": 10.0, **settings})


def reply(answer, **settings) -> Reply:
    """To one request; the small request that follows a failure is answered rightly."""
    retries = settings.get("retries", 0)
    with serving([*[answer] * (retries + 1), right] if callable(answer) else answer) as server:
        return dict(client(server.base_url, **settings).replies([REQUEST]))[0]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(backoff, "PAUSE", 0.01)


def test_a_request_has_schema_seed_and_thinking_off():
    with serving(right) as server:
        replies = dict(client(server.base_url).replies([REQUEST]))
    assert json.loads(replies[0].text) == {"caption": "a cat"}
    body = server.bodies[0]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["caption"]
    assert (body["seed"], body["temperature"], body["max_tokens"], body["model"]) == (7, 0.5, 99, "m")


def test_plain_and_as_served_send_nothing_of_the_kind():
    with serving(right) as server:
        list(client(server.base_url, plain_answers=True, thinking="as_served").replies([REQUEST]))
    assert "response_format" not in server.bodies[0] and "chat_template_kwargs" not in server.bodies[0]


def test_the_key_goes_to_the_server_and_nowhere_else(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv(KEY_VARIABLE, "secret-123")
    monkeypatch.setenv("OPENAI_API_KEY", "of-another-service")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-another")
    with caplog.at_level(logging.DEBUG), serving(right) as server:
        writer = client(server.base_url)
        CachedWriter(writer, AnswerCache(tmp_path)).answers([REQUEST], lambda _, reply: reply)
    sent = server.headers[0]
    assert sent["authorization"] == "Bearer secret-123"
    assert "another" not in json.dumps(sent)
    kept = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert "secret-123" not in caplog.text + kept + json.dumps(writer.payload(REQUEST))


def test_a_key_of_another_service_is_not_sent(monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "of-another-service")
    with serving(right) as server:
        list(client(server.base_url).replies([REQUEST]))
    assert "another" not in json.dumps(server.headers[0])


KEY = "sk-very/secret+key123"


@pytest.mark.parametrize(
    "echo",
    [
        lambda key: Answer(json.dumps({"error": {"message": f"bad key Bearer {key}"}}).encode(), 401),
        lambda key: Answer(f"key={quote(key, safe='')}".encode(), 403, kind="text/plain"),
        lambda key: Answer(f"{'x' * 190}{key} is wrong".encode(), 401, kind="text/plain"),  # cut within the key
        lambda key: Answer(f"<html>Authorization: you sent the token {' ' * 20}{key}".encode(), kind="text/html"),
    ],
)
def test_a_key_that_the_server_repeats_is_not_shown(monkeypatch, caplog, echo):
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with (
        caplog.at_level(logging.WARNING),
        serving(lambda _: echo(KEY)) as server,
        pytest.raises(EndpointError) as error,
    ):
        list(client(server.base_url).replies([REQUEST]))
    shown = "".join(traceback.format_exception(error.value)) + caplog.text
    assert "does not work" in shown and not [part for part in ("sk-ver", "secret", "key123") if part in shown]


def test_an_answer_that_repeats_the_key_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with serving(text(f"a {KEY} dog")) as server:
        cached = CachedWriter(client(server.base_url), AnswerCache(tmp_path))
        replies = cached.answers([REQUEST], lambda _, reply: reply)
    assert replies == [Reply(problem="answer holds the key")]
    assert "secret" not in "".join(path.read_text() for path in tmp_path.rglob("*.json"))


@pytest.mark.parametrize("address", ["me:hidden@127.0.0.1:1/v1", "127.0.0.1:1/v1?key=hidden", "127.0.0.1:1/v1#hidden"])
def test_a_secret_in_the_address_is_refused_and_not_repeated(address):
    with pytest.raises(ValueError, match=KEY_VARIABLE) as error:
        client(f"http://{address}")
    assert "hidden" not in str(error.value)
    with pytest.raises(ValueError, match="expected an address"):
        client("ftp://somewhere")


def test_requests_run_side_by_side_and_keep_their_places():
    def slow(body):
        response = right(body)
        response.seconds = 0.2
        return response

    requests = [Request(f"Input: a dog {n}\nKeyword: dog\nOutput:", n, 0.0, 50) for n in range(24)]
    with serving(slow) as server:
        replies = dict(client(server.base_url, concurrency=8).replies(requests))
    assert server.most_at_once == 8
    assert [json.loads(replies[n].text)["caption"] for n in range(24)] == [f"a cat {n}" for n in range(24)]


@pytest.mark.parametrize(
    ("first", "code"),
    [(Answer(b"busy", 429, {"Retry-After": "1"}), 429), (Answer(b"oops", 500), 500), (Answer(b"x", 503), 503)],
)
def test_failures_that_pass_are_tried_again(first, code):
    with serving([lambda _: first, right]) as server:
        replies = dict(client(server.base_url, retries=2).replies([REQUEST]))
    assert json.loads(replies[0].text) == {"caption": "a cat"} and len(server.bodies) == 2
    if code == 429:
        assert server.times[1] - server.times[0] > 0.9  # as Retry-After says


@pytest.mark.parametrize(
    "bad",
    [
        Answer(b"<html><body>502 Bad Gateway</body></html>", kind="text/html"),
        Answer(b'{"choices": [{"message"'),
        Answer(b"[" * 100_000),
        Answer(b'{"choices": []}'),
        Answer(b""),
        Answer(b"\xff\xfe\x00"),
        Answer(b"null"),
        Answer({"error": "no"}),
    ],
)
def test_a_body_that_is_no_completion_is_tried_again_and_then_a_problem_of_its_request(bad):
    with serving([lambda _: bad, right]) as server:
        assert dict(client(server.base_url, retries=1).replies([REQUEST]))[0].text
    failure = reply(lambda _: bad, retries=1)
    assert failure.problem == "no reply from the server: no chat completion" and not failure.is_final


def test_ten_megabytes_are_not_read():
    huge = completion("x" * 10_000_000)
    start = time.monotonic()
    assert reply(lambda _: Answer(huge)) == Reply(problem="answer too long")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (completion(None, refusal="I will not."), "model refused"),
        (completion('{"caption": "a c', finish_reason="length"), "answer cut off"),
    ],
)
def test_what_the_model_did_is_told_by_its_reply(body, problem):
    assert reply(lambda _: Answer(body)) == Reply(problem=problem)


def test_an_empty_answer_is_an_empty_text():
    assert reply(lambda _: Answer(completion(None))) == Reply("")


def numbered_requests(number: int) -> list[Request]:
    return [Request(f"Input: a dog {n}\nKeyword: dog\nOutput:", n, 0.0, 50) for n in range(number)]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_that_the_server_cannot_take_is_set_aside_alone(status):
    failure = reply(lambda _: Answer(b"too long a prompt", status))
    assert failure == Reply(problem=f"no reply from the server: code {status}", is_final=False)


@pytest.mark.parametrize(
    "bad",
    [
        Answer(b"crash", 500),
        Answer(b"", 408),
        Answer(b"slow down", 429),
        Answer(completion("x"), seconds=1.0),
        Answer(completion("x" * 1000), piece_seconds=1.0),
        Answer(completion("x" * 1000), is_cut=True),
    ],
)
def test_a_failure_that_passes_loses_no_caption(bad):
    with serving([lambda _: bad] * 2 + [right] + [lambda _: bad] * 2 + [right]) as server:
        replies = dict(client(server.base_url, retries=1, timeout=0.4).replies([REQUEST]))
    assert json.loads(replies[0].text) == {"caption": "a cat"}


def test_a_limit_of_requests_loses_no_caption(caplog):
    windows = Counter()

    def limit_rate(body):
        window = int(time.monotonic() / 0.05)
        windows[window] += 1
        return right(body) if windows[window] <= 5 else Answer(b"slow down", 429)

    with serving(limit_rate) as server:
        replies = dict(client(server.base_url, concurrency=64, retries=1).replies(numbered_requests(150)))
    assert [json.loads(replies[n].text)["caption"] for n in range(150)] == [f"a cat {n}" for n in range(150)]
    assert len(server.bodies) < 150 * 4 and caplog.text.count("limits requests (code 429)") == 1


def test_a_dripping_reply_is_read_to_its_end():
    assert reply(lambda _: Answer(completion("x" * 1000), piece_seconds=0.4), timeout=0.6).text


def test_a_failure_of_one_request_that_does_not_pass_stops_after_the_others(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    with serving(lambda body: Answer(b"crash", 500) if body["seed"] == 3 else right(body)) as server:
        answers = client(server.base_url).replies(numbered_requests(40))
        replies = []
        with pytest.raises(EndpointError, match="0 seconds: .*500"):
            replies += [next(answers) for _ in range(40)]
        sent = {body["seed"] for body in server.bodies}
    assert sent == set(range(40))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(b"slow down", 429, {"Retry-After": "3600"}), "3,600 seconds: code 429"),
        (Answer(b'{"error": {"code": "insufficient_quota", "message": "pay"}}', 429), "does not work: code 429"),
        (Answer(b"later", 503, {"Retry-After": "3600"}), "3,600 seconds: code 503"),
    ],
)
def test_a_limit_that_lasts_stops_at_once(answer, said):
    with serving(lambda _: answer) as server, pytest.raises(EndpointError, match=said):
        list(client(server.base_url, retries=5).replies(numbered_requests(40)))
    assert len(server.bodies) <= 41


def test_one_small_request_stands_for_many_failures():
    def refusing(body):
        return right(body) if "Write" in body["messages"][0]["content"] else Answer(b"no", 400)

    with serving(refusing) as server:
        replies = dict(client(server.base_url, concurrency=32).replies(numbered_requests(64)))
    assert all(entry.problem for entry in replies.values()) and len(server.bodies) == 65


def test_bad_bodies_count_in_a_row_only():
    bad, busy = Answer(b"<html>"), Answer(b"slow down", 429)
    with serving([lambda _, answer=answer: answer for answer in (bad, busy, bad)] + [right]) as server:
        assert dict(client(server.base_url, retries=1).replies([REQUEST]))[0].text


def test_an_interrupted_build_does_not_wait_for_the_server():
    with serving([right, lambda _: Answer(b"slow down", 429, {"Retry-After": "60"})]) as server:
        answers = client(server.base_url, concurrency=4).replies(numbered_requests(20))
        next(answers)
        start = time.monotonic()
        answers.close()
    assert time.monotonic() - start < 5


MODEL = b'{"error": {"message": "no such model."}}'


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(MODEL, 401), "code 401 - .*no such model.*"),
        (Answer(MODEL, 404), "code 404 - .*no such model.*"),
        (Answer(b"<html>Bad Gateway</html>", 502, kind="text/html"), "code 502.*"),
        (
            Answer(b"<html>Welcome</html>", kind="text/html"),
            "expected a chat completion, found '<html>Welcome</html>'",
        ),
        (Answer(b"{}", seconds=1.0), r"no reply within 0\.3 seconds \(--llm_timeout\)"),
        (Answer(b"{" * 99, is_cut=True), "the reply broke off, .*"),
        (None, r"no connection, .*[Cc]onnection refused"),
    ],
)
def test_an_endpoint_that_does_not_work_stops_with_what_to_do(answer, said, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "secret-123")
    with serving(lambda _: answer) as server:
        base_url = server.base_url if answer else closed_address()
        expected = rf"work: {said}\. .*--base_url, --llm m and {KEY_VARIABLE}; answers"
        with pytest.raises(EndpointError, match=expected) as error:
            list(client(base_url, timeout=0.3, concurrency=32).replies([REQUEST] * 50))
    assert "secret-123" not in str(error.value)


def test_no_requests_need_no_server():
    assert not list(client(closed_address()).replies([]))


def test_text_is_kept_as_it_came():
    assert reply(text("\u0000 <b> \u202e")).text == "\u0000 <b> \u202e"


def test_the_key_of_a_question_about_a_caption_stays_what_it_was():
    """Answers that users have paid for are found by it."""
    client_ = client("http://127.0.0.1:1/v1")
    key = content_hash(client_.payload(REQUEST))
    assert key == "54e2780c733dc77ae484c336f1f093629e92bf85ea18b84866ec9e99de480d17"
    assert content_hash(client_.payload(replace(REQUEST, field="concept"))) != key
