"""Language models that write negative captions, and what is believed of their answers.

* `requests`: what is asked and what comes back; `prompts`: the texts, data files in `prompts/`.
* `endpoint`: any OpenAI-compatible server; `in_process`: a small model through transformers.
* `answer_cache`: answers on disk by the content of their request.
* `reading`: from an answer to a caption; `changes`: from a caption to what was changed, and why it is refused.
* `making`: a writer from plain settings; `proposals`: negatives of the kinds `llm`.
"""
