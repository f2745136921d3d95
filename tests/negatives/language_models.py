"""Tiny language models on disk in the Hub's layout, and a parser that looks words up, all built without network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import spacy
import torch
from spacy.tokens import Doc
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Tokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
)

NOUNS = ("dog", "cat", "horse", "apple", "umbrella", "bench", "grass", "puppy", "unicorn", "carpet")
PLURALS = ("dogs", "cats", "horses")
ADJECTIVES = ("red", "blue", "green", "old", "same")
VERBS = ("riding", "eating", "holding", "runs", "sleeps", "rides")
SMALL = ("a", "an", "the", "on", "two", "is", "and", "with")
WORDS = (*NOUNS, *PLURALS, *ADJECTIVES, *VERBS, *SMALL)

# Penn tag, coarse tag and lemma; words that are missing are nouns of their own form.
LEXICON = {
    **{word: ("NN", "NOUN", word) for word in NOUNS},
    **{word: ("NNS", "NOUN", word[:-1]) for word in PLURALS},
    **{word: ("JJ", "ADJ", word) for word in ADJECTIVES},
    "riding": ("VBG", "VERB", "ride"),
    "eating": ("VBG", "VERB", "eat"),
    "holding": ("VBG", "VERB", "hold"),
    "runs": ("VBZ", "VERB", "run"),
    "sleeps": ("VBZ", "VERB", "sleep"),
    "rides": ("VBZ", "VERB", "ride"),
    "is": ("VBZ", "AUX", "be"),
    **{word: ("DT", "DET", word) for word in ("a", "an", "the", "two")},
    **{word: ("IN", "ADP", word) for word in ("on", "with")},
    "and": ("CC", "CCONJ", "and"),
}
# Standard deviation of weights that change no prediction; transformers reads 0 as its own default.
EVEN = 1e-6
# A model sees 16 tokens at once.
POSITIONS = 16
_SHAPE = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


class LexiconParser:
    """Tags each word by itself, and counts what it is asked."""

    name = "lexicon"

    def __init__(self):
        self._pipeline = spacy.blank("en")
        self.calls: list[int] = []

    def parse(self, captions: Iterable[str], *, num_processes: int = 1, batch_size: int = 256) -> Iterator[Doc]:
        captions = list(captions)
        self.calls.append(len(captions))
        for caption in captions:
            doc = self._pipeline.make_doc(caption)
            for token in doc:
                word = token.text.lower()
                plain = ("NN", "NOUN", word) if word.isalpha() else (".", "PUNCT", word)
                token.tag_, token.pos_, token.lemma_ = LEXICON.get(word, plain)
            yield doc


def roberta(folder: Path, liked: Mapping[str, float], *, noise: float = EVEN, seed: int = 0) -> Path:
    """A RoBERTa with a byte-level vocabulary: "Ġdog" begins a word, "dog" goes on with one.

    Args:
        folder: Where it is saved.
        liked: Tokens of the vocabulary and how likely they are in every place, as logits; all others have -100.
        noise: Standard deviation of all other weights: how much the text around a mask counts.
        seed: Of the weights.
    """
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    capitals = {word.capitalize() for word in WORDS} | {"Paris"}
    words = sorted({*WORDS, *capitals})
    # letter by letter, and first of all behind a space: so every word is one token wherever it stands
    spelled = ["Ġ" + word for word in words] + words
    merges = list(dict.fromkeys((word[:end], word[end]) for word in spelled for end in range(1, len(word))))
    tokens += list(dict.fromkeys("".join(pair) for pair in merges))
    vocabulary = {token: index for index, token in enumerate([*tokens, "<mask>"])}
    tokenizer = RobertaTokenizer(vocab=vocabulary, merges=merges, model_max_length=POSITIONS)
    config = RobertaConfig(
        vocab_size=len(vocabulary),
        max_position_embeddings=POSITIONS + 2,
        type_vocab_size=1,
        pad_token_id=1,
        initializer_range=noise,
        **_SHAPE,
    )
    torch.manual_seed(seed)
    _save_liking(RobertaForMaskedLM(config), "lm_head.bias", vocabulary, liked, folder)
    tokenizer.save_pretrained(folder)
    return folder


def bert(folder: Path, liked: Mapping[str, float], *, noise: float = EVEN, seed: int = 0) -> Path:
    """A BERT in lower case with a WordPiece vocabulary; arguments as in `roberta`."""
    letters = "abcdefghijklmnopqrstuvwxyz.,'-"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys([*pieces, "##ing"]))}
    config = BertConfig(
        vocab_size=len(vocabulary), max_position_embeddings=POSITIONS, initializer_range=noise, **_SHAPE
    )
    torch.manual_seed(seed)
    _save_liking(BertForMaskedLM(config), "cls.predictions.bias", vocabulary, liked, folder)
    BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=POSITIONS).save_pretrained(folder)
    return folder


def _save_liking(model, bias: str, vocabulary: dict, liked: Mapping[str, float], folder: Path) -> None:
    with torch.no_grad():
        model.get_parameter(bias).fill_(-100.0)
        for token, logit in liked.items():
            model.get_parameter(bias)[vocabulary[token]] = logit
    model.save_pretrained(folder)


def gpt2(folder: Path, sentences: Iterable[str] = (), *, noise: float = EVEN, steps: int = 0) -> Path:
    """A GPT-2 trained for some steps on sentences; without steps every token is as likely as any."""
    sentences = list(sentences)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([*sentences, " ".join(WORDS)], trainer)
    bpe = json.loads(backend.to_str())["model"]
    tokenizer = GPT2Tokenizer(
        vocab=bpe["vocab"], merges=[tuple(pair) for pair in bpe["merges"]], model_max_length=POSITIONS
    )
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=POSITIONS,
        n_embd=32,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=noise,
    )
    model = GPT2LMHeadModel(config)
    _train(model, tokenizer, sentences, steps)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _train(model, tokenizer, sentences: list[str], steps: int) -> None:
    if not steps:
        return
    bodies = [[0, *tokenizer(sentence)["input_ids"], 0] for sentence in sentences]
    longest = max(map(len, bodies))
    inputs = torch.tensor([body + [0] * (longest - len(body)) for body in bodies])
    labels = torch.tensor([body + [-100] * (longest - len(body)) for body in bodies])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=inputs, labels=labels).loss.backward()
        optimizer.step()
