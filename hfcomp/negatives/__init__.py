"""Hard negative texts: text work only, without torch and transformers.

* `keywords`: keyword permutation for object, color, location and size (Rösch et al. 2024).
* `concreteness`: ratings of how concrete a word is (Brysbaert et al. 2014), read from the user's copy.
"""
