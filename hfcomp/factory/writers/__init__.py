"""Language models that write negative captions or list phrases, and the checks of their answers.

* `requests`: requests, replies and their parsing; `prompts`: the prompts, from data files in `prompts/`.
* `endpoint`: a client for OpenAI-compatible servers, `backoff` its pace and errors; `in_process`: a small transformers
  model.
* `answer_cache`: answers on disk, by the content of their requests.
* `changes`: the change from a caption to an answer, and its checks; `meanings`: words that may mean the same.
* `phrases`: noun phrases of captions, each found again in its caption.
* `llm_client`: makes a client from plain settings, and negatives of the kinds `llm`.
"""
