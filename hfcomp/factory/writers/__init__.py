"""Language models that write negative captions, and what is believed of their answers.

* `requests`: what is asked, what comes back and how it is read; `prompts`: the texts, data files in `prompts/`.
* `endpoint`: any OpenAI-compatible server, `backoff` its pace and errors; `in_process`: a small model in transformers.
* `answer_cache`: answers on disk by the content of their request.
* `changes`: from a caption to what was changed, and why it is refused; `meanings`: words that may mean the same.
* `llm_client`: a model from plain settings, and negatives of the kinds `llm`.
"""
