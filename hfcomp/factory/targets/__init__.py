"""Which word of a caption a hard negative changes: ConcretePlant's choice of keywords (Concrete Jungle, section 2.2).

* `candidates`: the words that could be, with category and concreteness; `relations`: which say where, or do what.
* `choice`: the top k and the draw among them, the category of each row of a set, and how concrete its targets are.
"""
