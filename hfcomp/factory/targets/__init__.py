"""ConcretePlant's choice of the word that a hard negative changes (Concrete Jungle, section 2.2).

* `candidates`: possible words, with category and concreteness; `relations`: spatial phrases and interactions.
* `choice`: the top k and the draw among them, the category of each row, and a summary of the targets' concreteness.
"""
