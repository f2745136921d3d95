"""Servers that drip, redirect, ask to wait for ever, or do not know a field of a request."""

from __future__ import annotations

import json
import time

import pytest

from hfcomp.factory.writer_options import WriterOptions, check_writer
from hfcomp.factory.writers import backoff
from hfcomp.factory.writers.endpoint import EndpointError, EndpointWriter
from hfcomp.factory.writers.llm_client import Question, build_llm_client
from hfcomp.factory.writers.requests import Request, content_hash
from tests.factory.writers.endpoint import Answer, right, serving

pytest.importorskip("openai")
REQUEST = Request("Input: a dog\nKeyword: dog\nOutput:", seed=7, temperature=0.5, max_tokens=99)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(backoff, "PAUSE", 0.01)


def client(base_url: str, **settings) -> EndpointWriter:
    return EndpointWriter(base_url, **{"model": "m", "retries": 0, "timeout": 10.0, **settings})


def caption(reply) -> str:
    return json.loads(reply.text)["caption"]


def stopped_by(answer: Answer, **settings) -> str:
    with serving(lambda _: answer) as server, pytest.raises(EndpointError) as error:
        list(client(server.base_url, **settings).replies([REQUEST]))
    return str(error.value)


def test_headers_that_never_end_are_given_up_at_the_limit():
    start = time.monotonic()
    said = stopped_by(Answer({}, drip_seconds=0.05), timeout=0.3)
    assert "0.3 seconds (--llm_timeout)" in said and time.monotonic() - start < 3


def test_a_redirect_is_not_followed_and_named(monkeypatch):
    monkeypatch.setenv("HFCOMP_LLM_API_KEY", "secret-123")
    with serving(right) as other:
        place = f"{other.base_url}/chat/completions"
        said = stopped_by(Answer(b"", 307, {"Location": f"{place.replace('//', '//secret-123@')}?token=hidden"}))
    assert not other.bodies
    assert f"code 307, a redirect to {place}, " in said
    assert "hidden" not in said and "secret" not in said


def test_a_server_on_this_machine_is_asked_without_a_proxy(monkeypatch):
    with serving(right) as proxy, serving(right) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.base_url.removesuffix("/v1"))
        list(client(server.base_url).replies([REQUEST]))
    assert len(server.bodies) == 1 and not proxy.bodies


@pytest.mark.parametrize(
    "value", ["1e300", "inf", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT", "Sun Nov  6 08:49:37 2094"]
)
def test_a_wait_without_end_is_told_in_few_words(value):
    said = stopped_by(Answer(b"slow down", 429, {"Retry-After": value}))
    assert "86,400 seconds or more: code 429" in said and len(said) < 300


@pytest.mark.parametrize(
    "value", ["nan", "-5", "-1e300", "0", "soon", "", "Wed, 99 Foo 9999", "Sun Nov  6 08:49:37 1994"]
)
def test_a_wait_that_is_none_is_ignored(value):
    with serving([lambda _: Answer(b"slow down", 429, {"Retry-After": value}), right]) as server:
        start = time.monotonic()
        assert caption(dict(client(server.base_url).replies([REQUEST]))[0]) == "a cat"
    assert time.monotonic() - start < 3


def refusing(*fields: str, words: str = "Unsupported parameter: '{}' is not supported with this model.", status=400):
    def answer(body) -> Answer:
        named = next((name for name in fields if name in body), None)
        if named is None:
            return right(body)
        message = words.format(named)
        if named == "max_tokens":
            message += " Use 'max_completion_tokens' instead."
        return Answer({"error": {"message": message, "type": "invalid_request_error"}}, status)

    return answer


def test_fields_that_a_server_does_not_support_are_learned(caplog):
    with serving(refusing("max_tokens", "temperature", "seed")) as server:
        writer = client(server.base_url)
        key = content_hash(writer.payload(REQUEST))
        assert caption(dict(writer.replies([REQUEST]))[0]) == "a cat" and len(server.bodies) == 4
        list(writer.replies([REQUEST]))
    assert len(server.bodies) == 5 and server.bodies[-1]["max_completion_tokens"] == 99
    assert not {"max_tokens", "temperature", "seed"} & {*server.bodies[-1]}
    assert content_hash(writer.payload(REQUEST)) == key
    assert caplog.text.count("does not support") == 3 and "max_completion_tokens instead" in caplog.text


def test_a_number_of_tokens_that_is_asked_for_goes_to_the_other_field():
    with serving(refusing("max_tokens")) as server:
        list(client(server.base_url, request_options={"max_tokens": 4096}).replies([REQUEST]))
    assert server.bodies[-1]["max_completion_tokens"] == 4096 and "max_tokens" not in server.bodies[-1]


@pytest.mark.parametrize(
    "answer",
    [
        refusing("seed", words="[{{'type': 'extra_forbidden', 'loc': ['body', '{}']}}]", status=422),
        refusing(
            "temperature", words="Unsupported value: '{}' does not support 0.7. Only the default (1) is supported."
        ),
        refusing("seed", words="Unrecognized request argument supplied: {}"),
    ],
)
def test_refusals_in_other_words_are_understood(answer):
    with serving(answer) as server:
        assert caption(dict(client(server.base_url).replies([REQUEST]))[0]) == "a cat"
    assert len(server.bodies) == 2


def test_a_value_that_is_too_large_is_no_unsupported_field():
    words = b'{"error": {"message": "max_tokens is too large: 99. The limit is 64.", "param": "max_tokens"}}'
    with serving([lambda _: Answer(words, 400), right]) as server:
        reply = dict(client(server.base_url).replies([REQUEST]))[0]
    assert reply.problem == "no reply from the server: code 400"
    assert all(body["max_tokens"] for body in server.bodies)


@pytest.mark.follows(
    "hfcomp/factory/writers/endpoint.py", "{advice}, or check --{self.url_option}, --{self.model_option}"
)
@pytest.mark.parametrize(
    ("field", "option", "change"),
    [
        ("chat_template_kwargs", "--thinking as_served", {"thinking": "as_served"}),
        ("response_format", "--plain_answers", {"plain_answers": True}),
        ("top_k", "--request_options top_k=null", {"request_options": {"top_k": None}}),
    ],
)
def test_what_the_refusal_of_a_field_advises_helps(field, option, change):
    given = {"request_options": {"top_k": 5}} if field == "top_k" else {}
    with serving(refusing(field)) as server:
        with pytest.raises(EndpointError, match=rf"{field}.* {option}.*--base_url"):
            list(client(server.base_url, **given).replies([REQUEST]))
        assert "cat" in dict(client(server.base_url, **given | change).replies([REQUEST]))[0].text


def test_request_options_replace_and_remove_fields(tmp_path):
    given = "max_tokens=null,max_completion_tokens=500,temperature=null,seed=null,reasoning_effort=low"
    with serving(lambda body: Answer(b"", 500) if "seed" in body else right(body)) as server:
        options = WriterOptions(base_url=server.base_url, llm="m", answer_cache=str(tmp_path), request_options=given)
        client = build_llm_client(**options.writer_settings())
        prompt = REQUEST.prompt
        answers = [
            client.answers([Question(prompt, "a dog", ("x",), attempt)], 0, lambda _, text: text)[0]
            for attempt in (0, 1)
        ]
    assert answers == ["a cat", "a cat"] and len(server.bodies) == 2  # attempts are questions of their own
    body = server.bodies[0]
    assert (body["max_completion_tokens"], body["reasoning_effort"]) == (500, "low")
    assert not {"max_tokens", "temperature", "seed"} & {*body}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("seed", "expected name=value"),
        ("{", "not JSON"),
        ("[1]", "expected name=value"),
        ("stream=true", "stream cannot"),
        ('{"messages": []}', "messages cannot"),
        ("top_p=NaN", "top_p .*JSON number"),
        ("model=x", "model .*--llm"),
    ],
)
def test_request_options_that_do_not_fit_are_named(given, message):
    with pytest.raises(ValueError, match=f"--request_options.*{message}"):
        WriterOptions(base_url="http://c/v1", request_options=given).writer_settings()


@pytest.mark.follows("hfcomp/factory/writer_options.py", "Use --llm instead.")
@pytest.mark.follows("hfcomp/factory/writer_options.py", "cannot be set.{_SET_BY_HFCOMP[name]} Remove it.")
@pytest.mark.follows("hfcomp/factory/writer_options.py", "found --writer {writer}. Remove it.")
def test_request_options_are_removed_as_advised():
    with pytest.raises(ValueError, match="model .*--llm "):
        WriterOptions(base_url="http://c/v1", request_options="model=x").writer_settings()
    assert WriterOptions(base_url="http://c/v1", llm="x").writer_settings()["llm"] == "x"
    with pytest.raises(ValueError, match="--request_options .*--writer endpoint.*--writer transformers"):
        check_writer("transformers", None, "top_k=1")
    check_writer("transformers", None, "")
