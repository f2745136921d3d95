"""Hard negative texts: text work only; torch and transformers are imported where a language model is asked for.

* `keywords`: keyword permutation for object, color, location and size, or your own words (Rösch et al. 2024).
* `swaps`: two nouns, adjectives, noun phrases or verbs change places (NegCLIP).
* `mask_filling`: another word by a masked language model (CE-CLIP).
* `rewordings`: other wordings that stay true.
* `neighbors`: nearest images or captions by their embeddings (NegCLIP).
* `filters`, `grammar`: reject negatives by their text, their likelihood or a model's scores.
* `concreteness`: ratings of how concrete a word is (Brysbaert et al. 2014), read from the user's copy.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
