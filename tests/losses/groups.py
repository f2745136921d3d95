"""The group losses once more, as plain loops over groups and members, written from the equations; and their batch."""

import torch

from tests.losses import reference
from tests.losses.checks import unit

RAGGED = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 0, 0], [0, 1, 0]]).bool()
ALONE = torch.tensor([[0, 0, 0], [1, 1, 1], [0, 0, 0], [0, 0, 0]]).bool()
EVERYONE, NOBODY = torch.ones_like(RAGGED), torch.zeros_like(RAGGED)
SETTINGS = {"temperature": 0.1, "inner_temperature": 0.3, "alpha": 0.7}


def batch(dtype=torch.float64, groups=4, members=3, width=5):
    return unit(groups, members, width, seed=1, dtype=dtype), unit(groups, members, width, seed=2, dtype=dtype)


def to_unit(vector):
    return vector / (vector * vector).sum().sqrt()


def dot(a, b):
    return (a * b).sum()


def mean(vectors):
    return sum(vectors) / len(vectors)


def members(mask):
    """The members of every group that has one: {g: [i, ...]}."""
    indices = {g: [i for i in range(mask.shape[1]) if mask[g, i]] for g in range(len(mask))}
    return {g: own for g, own in indices.items() if own}


def surprise(positive, everything):
    """-log of the share that the positives' exponentials have of all; lists of logits."""
    return reference.log_sum(everything) - reference.log_sum(positive)


def same(ids, g, i, h, j):
    """Whether two members, of different groups, show one image or have one caption; ids of both, each or None."""
    return g != h and any(values is not None and int(values[g, i]) == int(values[h, j]) for values in ids)


def rivals(group, ids, g, own):
    """The groups that own, members of group g, are told from: g itself, and those that share nothing with them."""
    return [h for h in group if not any(same(ids, g, i, h, j) for i in own for j in group[h])]


def pairwise_outer(image, text, mask, tau, ids):
    """Eq. 2; M N of the paper is the number of all members."""
    terms, group = [], members(mask)
    for g, own in group.items():
        for i in own:
            for query, key in ((image, text), (text, image)):
                logits = {
                    h: [dot(query[g, i], key[h, j]) / tau for j in group[h] if not same(ids, g, i, h, j)]
                    for h in group
                }
                terms.append(surprise(logits[g], [x for h in group for x in logits[h]]))
    return mean(terms) if terms else reference.zero(image, text)


def joint_vectors(image, text, mask):
    return {g: [image[g, i] * text[g, j] for i in own for j in own] for g, own in members(mask).items()}


def joint_inner(joint, centroid, tau, nothing, mask, ids):
    """Eq. 3, for whatever centroids."""
    group = members(mask)
    terms, mu = [], {g: to_unit(vector) for g, vector in centroid.items()}
    for g, vectors in joint.items():
        pairs = [(i, j) for i in group[g] for j in group[g]]
        for v, pair in zip(vectors, pairs, strict=True):
            logits = {h: dot(to_unit(v), mu[h]) / tau for h in rivals(group, ids, g, pair)}
            terms.append(surprise([logits[g]], list(logits.values())))
    return mean(terms) if terms else nothing


def pairwise(image, text, mask, temperature, inner_temperature, alpha, image_id=None, text_id=None):
    ids = image_id, text_id
    joint = joint_vectors(image, text, mask)
    centroid = {g: mean(vectors) for g, vectors in joint.items()}  # Eq. 1
    inner = joint_inner(joint, centroid, inner_temperature, reference.zero(image, text), mask, ids)
    return alpha * inner + (1 - alpha) * pairwise_outer(image, text, mask, temperature, ids)  # Eq. 4


def released_pairwise(image, text, mask, temperature, inner_temperature, alpha, image_id=None, text_id=None):
    """Joint vectors normalized before they are averaged; alpha on the outer loss."""
    ids = image_id, text_id
    joint = {g: [to_unit(v) for v in some] for g, some in joint_vectors(image, text, mask).items()}
    centroid = {g: to_unit(mean(vectors)) for g, vectors in joint.items()}
    inner = joint_inner(joint, centroid, inner_temperature, reference.zero(image, text), mask, ids)
    return alpha * pairwise_outer(image, text, mask, temperature, ids) + (1 - alpha) * inner


def centroid(image, text, mask, temperature, inner_temperature, alpha, image_id=None, text_id=None):
    ids = image_id, text_id
    group = members(mask)
    if not group:
        return reference.zero(image, text)
    # Eq. 5; only their directions are ever used
    mu = [{g: to_unit(mean([side[g, i] for i in own])) for g, own in group.items()} for side in (image, text)]
    outer, inner = [], []
    for g, own in group.items():
        for first, second in (mu, mu[::-1]):  # Eq. 6
            logits = {h: dot(first[g], second[h]) / temperature for h in rivals(group, ids, g, own)}
            outer.append(surprise([logits[g]], list(logits.values())))
        for side, center in zip((image, text), mu, strict=True):  # Eq. 7
            for i in own:
                logits = {h: dot(side[g, i], center[h]) / inner_temperature for h in rivals(group, ids, g, [i])}
                inner.append(surprise([logits[g]], list(logits.values())))
    return alpha * mean(inner) + (1 - alpha) * mean(outer)  # Eq. 8
