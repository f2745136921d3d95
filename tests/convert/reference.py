"""The networks of open_clip as its papers and code describe them, in plain torch: no code of hfcomp or transformers.

Names of parameters are those of open_clip's checkpoints, so that a state of one is a checkpoint.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


def activation(name: str) -> nn.Module:
    return {"quick_gelu": QuickGELU(), "gelu": nn.GELU(), "gelu_pytorch_tanh": nn.GELU(approximate="tanh")}[name]


class Block(nn.Module):
    def __init__(self, width, heads, inner, act, eps):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=eps)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=eps)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, inner))
        self.mlp.add_module("gelu", activation(act))
        self.mlp.add_module("c_proj", nn.Linear(inner, width))

    def forward(self, x, mask=None):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, width, layers, heads, inner, act, eps):
        super().__init__()
        self.resblocks = nn.ModuleList(Block(width, heads, inner, act, eps) for _ in range(layers))

    def forward(self, x, mask=None):
        for block in self.resblocks:
            x = block(x, mask)
        return x


class Vision(nn.Module):
    def __init__(self, size, patch, width, layers, heads, inner, embed, act, eps):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width))
        self.positional_embedding = nn.Parameter(torch.randn((size // patch) ** 2 + 1, width))
        self.ln_pre = nn.LayerNorm(width, eps=eps)
        self.transformer = Transformer(width, layers, heads, inner, act, eps)
        self.ln_post = nn.LayerNorm(width, eps=eps)
        self.proj = nn.Parameter(torch.randn(width, embed))

    def forward(self, pixels):
        x = self.conv1(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(len(x), 1, -1), x], 1) + self.positional_embedding
        x = self.transformer(self.ln_pre(x))
        return self.ln_post(x[:, 0]) @ self.proj


class Text(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads, inner, embed, act, eps, siglip=False):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.positional_embedding = nn.Parameter(torch.randn(length, width))
        self.transformer = Transformer(width, layers, heads, inner, act, eps)
        self.ln_final = nn.LayerNorm(width, eps=eps)
        self.text_projection = nn.Linear(width, embed) if siglip else nn.Parameter(torch.randn(width, embed))
        self.siglip = siglip

    def forward(self, tokens):
        x = self.token_embedding(tokens) + self.positional_embedding
        if self.siglip:
            return self.text_projection(self.ln_final(self.transformer(x))[:, -1])
        mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)
        x = self.ln_final(self.transformer(x, mask))
        return x[torch.arange(len(x)), tokens.argmax(-1)] @ self.text_projection


class OpenClip(nn.Module):
    """The text tower lies at the root, or in `text` where `custom_text` asks for it."""

    def __init__(self, vision, text, custom_text=False):
        super().__init__()
        self.visual = vision
        self.logit_scale = nn.Parameter(torch.tensor(2.7))
        self.custom_text = custom_text
        self._text = [text]  # not a module of its own: its parts are
        if custom_text:
            self.text = text
        else:
            for name, part in text.named_children():
                self.add_module(name, part)
            for name, value in text.named_parameters(recurse=False):
                self.register_parameter(name, value)

    def images(self, pixels):
        return F.normalize(self.visual(pixels), dim=-1)

    def texts(self, tokens):
        return F.normalize(self._text[0](tokens), dim=-1)


class TimmAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.proj(attention(q, k, v))


class TimmMlp(nn.Module):
    def __init__(self, width, inner, act):
        super().__init__()
        self.fc1, self.fc2, self.act = nn.Linear(width, inner), nn.Linear(inner, width), activation(act)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class TimmBlock(nn.Module):
    def __init__(self, width, heads, inner, act):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn, self.mlp = TimmAttention(width, heads), TimmMlp(width, inner, act)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TimmPool(nn.Module):
    """One learned query over all patches."""

    def __init__(self, width, heads, inner, act):
        super().__init__()
        self.heads = heads
        self.latent = nn.Parameter(torch.randn(1, 1, width))
        self.q, self.kv, self.proj = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.norm, self.mlp = nn.LayerNorm(width, eps=1e-6), TimmMlp(width, inner, act)

    def forward(self, x):
        projections = (self.q(self.latent.expand(len(x), -1, -1)), *self.kv(x).chunk(2, -1))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in projections)
        x = self.proj(attention(q, k, v))
        return (x + self.mlp(self.norm(x)))[:, 0]


class TimmTrunk(nn.Module):
    def __init__(self, size, patch, width, layers, heads, inner, act):
        super().__init__()
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, width, patch, patch)
        self.pos_embed = nn.Parameter(torch.randn(1, (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(TimmBlock(width, heads, inner, act) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.attn_pool = TimmPool(width, heads, inner, act)

    def forward(self, pixels):
        x = self.patch_embed.proj(pixels).flatten(2).transpose(1, 2) + self.pos_embed
        return self.attn_pool(self.norm(self.blocks(x)))


class SigLip(OpenClip):
    def __init__(self, trunk, text):
        vision = nn.Module()
        vision.trunk = trunk
        vision.forward = trunk.forward
        super().__init__(vision, text, custom_text=True)
        self.logit_bias = nn.Parameter(torch.tensor(-10.0))


def attention(q, k, v):
    weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def randomize(model: nn.Module, seed: int) -> nn.Module:
    """Weights large enough that the activation matters; norms of weight 1 and a bias, to find swapped ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name in ("logit_scale", "logit_bias"):
                continue
            noise = torch.randn(value.shape, generator=generator)
            is_norm = any(part in name for part in ("ln_", "norm")) and name.endswith("weight")
            value.copy_(1 + 0.1 * noise if is_norm else noise * (0.3 if value.ndim < 2 else value.shape[-1] ** -0.5))
    return model.eval()
