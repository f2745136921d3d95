"""The gradient of the hard negative in closed form: against autograd of Cement, its limits, and Cement's metrics."""

import pytest
import torch

from hfcomp.losses import cement_loss
from hfcomp.losses.gradient_share import negative_logits
from tests.losses.test_cement import IMAGE_MASK, TEXT_MASK, batch

N = 4
MASKED = {"negative_image_mask": IMAGE_MASK, "negative_text_mask": TEXT_MASK}
WITHOUT_IMAGES = {"negative_image_mask": torch.zeros(N, dtype=torch.bool)}
IDS = {
    "image_id": torch.tensor([7, 8, 7, 9]),
    "text_id": torch.tensor([1, 2, 3, 1]),
    # row 0's negative is row 1's text, row 3's is its own text
    "negative_text_id": torch.tensor([2, 5, 6, 1]),
}
CASES = {"all": {}, "masked": MASKED, "no images": WITHOUT_IMAGES, "ids": IDS, "everything": MASKED | IDS}


def free_logits(scale):
    """Embeddings whose logits are free: each image is a unit vector, so text j holds the logits of column j."""
    images = torch.eye(2 * N, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    texts = torch.randn(2 * N, 2 * N, generator=generator, dtype=torch.float64) / scale * 2
    return images[:N], images[N:], texts.requires_grad_()


def logit_gradient(texts, images, negatives, scale, margin, row, arguments):
    """The gradient of the terms of anchors `row` and `row + N` on every logit [2N, 2N], as sums over terms."""
    loss, _ = cement_loss(
        images,
        texts[:N],
        negatives,
        texts[N:],
        logit_scale=scale,
        margin=margin,
        rows=slice(row, row + 1),
        **arguments,
    )
    (gradient,) = torch.autograd.grad(loss, texts)
    both = torch.ones(2 * N, dtype=torch.bool)
    for name in ("negative_image_mask", "negative_text_mask"):
        if name in arguments:
            both[N:] &= arguments[name]
    return gradient.T / scale * both.sum() * 2  # the loss is a mean over anchors and directions


@pytest.mark.parametrize("case", CASES)
def test_equals_autograd(case):
    arguments, margin = CASES[case], torch.tensor([0.0, 1.5, -1.0, 2.0], dtype=torch.float64)
    scale = torch.tensor(5.0, dtype=torch.float64)
    images, negatives, texts = free_logits(scale)
    logits = negative_logits(images, texts[:N], negatives, texts[N:], logit_scale=scale, **arguments)
    hard, easy = logits.magnitudes(margin)
    assert logits.counted.any()
    for row in range(N):
        gradient = logit_gradient(texts, images, negatives, scale, margin, row, arguments)
        pair = [row, row + N]
        others = [index for index in range(2 * N) if index not in pair]
        for way, own in enumerate((gradient, gradient.T)):
            for anchor in pair:
                if logits.counted[way, anchor]:
                    torch.testing.assert_close(own[anchor, others].sum(), easy[way, anchor])
        # image i meets text i' as image to text of anchor i and as text to image of anchor i'
        for first, second in (pair, pair[::-1]):
            expected = hard[0, first] + hard[1, second]
            torch.testing.assert_close(gradient[first, second], expected)
        if logits.counted[:, pair].all():
            total = (hard + easy)[:, pair].sum()
            torch.testing.assert_close(-gradient[pair, pair].sum(), total)


def test_equals_the_metrics_of_the_loss():
    *embeddings, scale, margin = batch()
    _, metrics = cement_loss(*embeddings, logit_scale=scale, margin=margin)
    hard, easy = negative_logits(*embeddings, logit_scale=scale).magnitudes(margin).mean((1, 2))
    torch.testing.assert_close(hard, metrics["gradient_hard_negative"])
    torch.testing.assert_close(easy, metrics["gradient_easy_negatives"])


def test_limits():
    *embeddings, scale, _ = batch()
    logits = negative_logits(*embeddings, logit_scale=scale)

    def share(logits, margin):
        hard, easy = logits.magnitudes(margin)
        return hard / (hard + easy)

    torch.testing.assert_close(share(logits, 0.7), torch.sigmoid(logits.hard + 0.7 - logits.easy))
    assert (share(logits, 60.0) > 1 - 1e-6).all()
    hard, easy = logits.magnitudes(-60.0)
    assert (hard < 1e-12).all() and (easy > 0).all()
    alone = negative_logits(*(embedding[:1] for embedding in embeddings), logit_scale=scale)
    assert (alone.easy == -torch.inf).all() and (share(alone, -3.0) == 1).all()


def test_a_pair_without_a_hard_negative_is_not_counted():
    *embeddings, scale, margin = batch()
    logits = negative_logits(*embeddings, logit_scale=scale, **WITHOUT_IMAGES)
    assert logits.counted.tolist() == [[True] * N + [False] * N, [False] * 2 * N]
    assert not logits.magnitudes(margin)[:, ~logits.counted].any()
    own_text = torch.arange(N)
    equal = negative_logits(*embeddings, logit_scale=scale, text_id=own_text, negative_text_id=own_text)
    assert not equal.counted.any()
