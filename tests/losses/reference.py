"""The losses once more, as plain loops over i and j in float64, written from the equations.

Every function takes whole batches and Python-visible masks, and returns a scalar that carries gradient.
"""

import math

import torch


def log_sum(entries):
    """log sum exp of a Python list of scalars, None for an empty list."""
    if not entries:
        return None
    highest = max(float(x.detach()) for x in entries)
    return torch.log(sum(torch.exp(x - highest) for x in entries)) + highest


def similarity(image, text, scale):
    return [[scale * (image[i] * text[j]).sum() for j in range(len(text))] for i in range(len(image))]


def transpose(s):
    return [[s[i][j] for i in range(len(s))] for j in range(len(s[0]))]


def zero(*tensors):
    return sum(x.sum() for x in tensors) * 0.0


def same(ids, i, j):
    return ids is not None and int(ids[i]) == int(ids[j])


def meet(image_id, text_id, i, j):
    """Whether rows i and j are contrasted: a row with itself, and with those of other images and other texts."""
    return i == j or not (same(image_id, i, j) or same(text_id, i, j))


def is_caption(text_id, negative_text_id, i, n, k):
    """Whether negative k of row n is the text of row i."""
    return negative_text_id is not None and int(negative_text_id[n][k]) == int(text_id[i])


def own_mask(text_id, negative_text_id, negative_mask):
    """The mask without negatives that are the text of their own row."""
    mask = negative_mask.clone()
    for i in range(len(mask)):
        for k in range(mask.shape[1]):
            mask[i, k] &= not is_caption(text_id, negative_text_id, i, i, k)
    return mask


def contrast(query, keys, scale, *, additions, query_mask, key_mask):
    """Row and column log-sum-exp; additions is a dictionary {(i, j): value}. Empty ones are -inf."""
    rows, columns = [[] for _ in query], [[] for _ in keys]
    for i in range(len(query)):
        for j in range(len(keys)):
            value = scale * (query[i] * keys[j]).sum()
            for added in additions.get((i, j), []):
                value = value + added
            if query_mask[i] and key_mask[j] and float(value.detach()) > -math.inf:
                rows[i].append(value)
                columns[j].append(value)
    nothing = torch.tensor(-math.inf, dtype=torch.float64)
    return [
        torch.stack([nothing if (total := log_sum(entries)) is None else total for entries in side])
        for side in (rows, columns)
    ]


def info_nce(
    image,
    text,
    *,
    logit_scale,
    negative_text=None,
    negative_mask=None,
    decoupled=False,
    image_id=None,
    text_id=None,
    negative_text_id=None,
):
    """InfoNCE, or DCL: the mean of two directions; anchors without denominator are not counted."""
    size = len(image)
    s = similarity(image, text, logit_scale)
    total = zero(image, text, logit_scale)
    for direction, logits in enumerate((s, transpose(s))):
        terms = []
        for i in range(size):
            keys = [j for j in range(size) if meet(image_id, text_id, i, j)]
            denominator = [logits[i][j] for j in keys if not (decoupled and j == i)]
            if direction == 0 and negative_text is not None:
                for n in range(size):
                    for k in range(negative_text.shape[1]):
                        if negative_mask[n][k] and not is_caption(text_id, negative_text_id, i, n, k):
                            denominator.append(logit_scale * (image[i] * negative_text[n, k]).sum())
            if denominator:
                terms.append(log_sum(denominator) - logits[i][i])
        if terms:
            total = total + sum(terms) / len(terms) / 2
    return total


def dcl(image, text, **arguments):
    return info_nce(image, text, decoupled=True, **arguments)


def replaced_negative(image, text, negative_text, *, logit_scale, slots, image_id=None, text_id=None):
    size = len(image)
    s = similarity(image, text, logit_scale)
    total = zero(image, text, logit_scale)
    for i in range(size):
        row = {j: s[i][j] for j in range(size) if meet(image_id, text_id, i, j)}
        for k in range(negative_text.shape[1]):
            if int(slots[i, k]) >= 0:
                row[int(slots[i, k])] = logit_scale * (image[i] * negative_text[i, k]).sum()
        column = [s[j][i] for j in range(size) if meet(image_id, text_id, i, j)]
        total = total + (log_sum(list(row.values())) - s[i][i]) / size / 2
        total = total + (log_sum(column) - s[i][i]) / size / 2
    return total


def sigmoid(image, text, *, logit_scale, logit_bias, image_id=None, text_id=None):
    size = len(image)
    total = zero(image)
    for i in range(size):
        for j in [j for j in range(size) if meet(image_id, text_id, i, j)]:
            sign = 1.0 if i == j else -1.0
            logit = logit_scale * (image[i] * text[j]).sum() + logit_bias
            total = total - torch.log(1 / (1 + torch.exp(-sign * logit))) / size
    return total


def cement(
    image,
    text,
    negative_image,
    negative_text,
    *,
    logit_scale,
    margin,
    image_mask,
    text_mask,
    image_id=None,
    text_id=None,
    negative_text_id=None,
):
    """Eq. 5 with masks, as the mean of the two directions."""
    size = len(image)
    images, texts = torch.cat([image, negative_image]), torch.cat([text, negative_text])
    image_valid, text_valid = [True] * size + list(image_mask), [True] * size + list(text_mask)
    anchors = [i for i in range(2 * size) if image_valid[i] and text_valid[i]]
    # texts of the doubled batch; a missing one equals nothing
    says = [None if text_id is None else int(x) for x in (range(size) if text_id is None else text_id)]
    says += [
        None if negative_text_id is None else int(x) for x in (text if negative_text_id is None else negative_text_id)
    ]
    says = [x if ok else None for x, ok in zip(says, text_valid, strict=True)]

    def met(i, j):
        if i == j:
            return True
        if says[i] is not None and says[i] == says[j]:
            return False
        return i >= size or j >= size or not same(image_id, i, j)  # all rows of an image are originals

    s = similarity(images, texts, logit_scale)
    total = zero(images, texts)
    for logits, valid in ((s, text_valid), (transpose(s), image_valid)):
        for i in anchors:
            counterpart = (i + size) % (2 * size)
            denominator = []
            for j in range(2 * size):
                if valid[j] and met(i, j):
                    denominator.append(logits[i][j] + margin[i % size] if j == counterpart else logits[i][j])
            total = total + (log_sum(denominator) - logits[i][i]) / len(anchors) / 2
    return total


def fermi_dirac(rating, *, minimum, maximum, threshold, temperature):
    """Eq. 4 for one rating."""
    return (maximum - minimum) / (1 + math.exp((threshold - rating) / temperature)) + minimum


def negative_margin(image, text, negative_text, *, threshold, negative_kind, negative_mask):
    """AHNPL, Eq. 9 divided by N: a mean over all images of the sum over their own negatives."""
    total = zero(image, text)
    for i in range(len(image)):
        for k in range(negative_text.shape[1]):
            if not negative_mask[i][k]:
                continue
            lead = (image[i] * text[i]).sum() - (image[i] * negative_text[i, k]).sum()
            shortfall = float(threshold[int(negative_kind[i][k])]) - lead
            if float(shortfall.detach()) > 0:
                total = total + shortfall
    return total / len(image)


def adaptive_threshold(image, text, negative_text, *, previous, negative_kind, negative_mask):
    """AHNPL, Eq. 10, per kind over the valid negatives; an absent kind keeps its own."""
    leads = [[] for _ in previous]
    for i in range(len(image)):
        for k in range(negative_text.shape[1]):
            if negative_mask[i][k]:
                lead = (image[i] * text[i]).sum() - (image[i] * negative_text[i, k]).sum()
                leads[int(negative_kind[i][k])].append(float(lead.detach()))
    return [sum(lead) / len(lead) if lead else float(kept) for lead, kept in zip(leads, previous, strict=True)]


def intra_modal(image, text, negative_text, *, logit_scale, negative_mask):
    """Cross-entropy of the own pair against own text-text similarities, a mean over all texts."""
    total = zero(image, text, logit_scale)
    for i in range(len(image)):
        positive = logit_scale * (image[i] * text[i]).sum()
        entries = [positive]
        for k in range(negative_text.shape[1]):
            if negative_mask[i][k]:
                entries.append(logit_scale * (text[i] * negative_text[i, k]).sum())
        total = total + log_sum(entries) - positive
    return total / len(image)


def perturb(image, text, negative_text):
    """AHNPL, Eqs. 1 and 2, each made a unit vector."""
    rows = []
    for i in range(len(image)):
        moved = [image[i] + (negative_text[i, k] - text[i]) for k in range(negative_text.shape[1])]
        rows.append(torch.stack([x / (x * x).sum() ** 0.5 for x in moved]))
    return torch.stack(rows)


def multimodal_hard_negative(image, text, negative_image, negative_text, *, negative_mask):
    """AHNPL, Eqs. 5 to 7 divided by N; a sum over no negatives is left out."""
    total = zero(image, text)
    for anchors, negatives in ((image, negative_image), (text, negative_text)):
        for i in range(len(anchors)):
            valid = [k for k in range(negatives.shape[1]) if negative_mask[i][k]]
            if valid:
                denominator = sum(torch.exp((anchors[i] * negatives[i, k]).sum()) for k in valid)
                total = total - torch.log(1 / denominator) / len(anchors)
    return total


def positive_margin(image, text, *, margin):
    """AHNPL, Eq. 8 divided by N."""
    total = zero(image, text, margin)
    for i in range(len(image)):
        shortfall = margin - (image[i] * text[i]).sum()
        if float(shortfall.detach()) > 0:
            total = total + shortfall / len(image)
    return total


def ahnpl(
    image,
    text,
    negative_image,
    negative_text,
    *,
    logit_scale,
    margin,
    threshold,
    negative_kind,
    negative_mask,
    image_id=None,
    text_id=None,
    negative_text_id=None,
):
    """AHNPL, Eq. 12 divided by N; Eq. 4 in full, with the negative texts of all rows as keys of every image."""
    size, s = len(image), similarity(image, text, logit_scale)
    total = zero(image, text, logit_scale)
    for i in range(size):
        keys = [j for j in range(size) if meet(image_id, text_id, i, j)]
        to_text = [s[i][j] for j in keys]
        for n in range(size):
            for k in range(negative_text.shape[1]):
                if negative_mask[n][k] and not is_caption(text_id, negative_text_id, i, n, k):
                    to_text.append(logit_scale * (image[i] * negative_text[n, k]).sum())
        total = total - (s[i][i] - log_sum(to_text) + s[i][i] - log_sum([s[j][i] for j in keys])) / size
    own = {"negative_mask": own_mask(text_id, negative_text_id, negative_mask)}
    return (
        total
        + multimodal_hard_negative(image, text, negative_image, negative_text, **own)
        + positive_margin(image, text, margin=margin)
        + negative_margin(image, text, negative_text, threshold=threshold, negative_kind=negative_kind, **own)
    )


def triplet_clip(
    image,
    text,
    negative_image,
    negative_text,
    *,
    logit_scale,
    image_mask,
    text_mask,
    image_id=None,
    text_id=None,
    negative_text_id=None,
):
    """Two NegCLIP losses over a list of rows each; the second one's anchors need both halves."""
    total = zero(image, text, logit_scale)
    everyone = [True] * len(image)
    # a missing text equals nothing
    says = (
        None
        if negative_text_id is None
        else [x if ok else -1 - i for i, (x, ok) in enumerate(zip(negative_text_id, text_mask, strict=True))]
    )
    halves = (
        (image, text, negative_text, everyone, everyone, text_mask, image_id, text_id, says),
        (negative_image, negative_text, text, image_mask, text_mask, everyone, None, says, text_id),
    )
    for x, y, other, x_valid, y_valid, other_valid, ids, own_says, other_says in halves:
        anchors = [i for i in range(len(image)) if x_valid[i] and y_valid[i]]

        def equal(i, j, first=own_says, second=other_says):
            return first is not None and second is not None and int(first[i]) == int(second[j])

        for i in anchors:
            keys = [j for j in range(len(y)) if meet(ids, own_says, i, j)]
            own = logit_scale * (x[i] * y[i]).sum()
            to_text = [logit_scale * (x[i] * y[j]).sum() for j in keys if y_valid[j]]
            to_text += [
                logit_scale * (x[i] * other[j]).sum() for j in range(len(y)) if other_valid[j] and not equal(i, j)
            ]
            to_image = [logit_scale * (x[j] * y[i]).sum() for j in keys if x_valid[j]]
            total = total + (log_sum(to_text) + log_sum(to_image) - 2 * own) / len(anchors) / 2
    return total
