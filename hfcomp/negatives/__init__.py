"""Hard negative texts. This is text processing; torch and transformers are imported only for language models.

* `keywords`: keyword permutation for object, color, location and size, or your own words (Rösch et al. 2024).
* `swaps`: swaps two nouns, adjectives, noun phrases or verbs (NegCLIP).
* `mask_filling`: replaces a word using a masked language model (CE-CLIP).
* `rewordings`: rewords a caption so that it stays true.
* `neighbors`: nearest images or captions by their embeddings (NegCLIP).
* `filters`: rejects negatives by their text, their likelihood or a model's scores.
* `concreteness`: ratings of how concrete a word is (Brysbaert et al. 2014), read from the user's copy.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
