"""A first Vision Transformer for MNIST, as one writes it in an evening. It runs, the loss falls, and it stops at 90 %.

Try: vitlab check docs/first_vit.py
"""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.width, self.heads = width, heads
        self.queries, self.keys, self.values = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, self.heads, -1).transpose(1, 2)
            for layer in (self.queries, self.keys, self.values)
        )
        weights = (q @ k.transpose(-2, -1) / self.width**0.5).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, -1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, patch=7, width=32, heads=4, depth=3, classes=10):
        super().__init__()
        self.cut = nn.Unfold(patch, stride=patch)
        self.embedding = nn.Linear(patch * patch, width)
        self.position = nn.Linear(patch * patch, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Linear(width, classes)

    def forward(self, pictures):
        patches = self.cut(pictures).transpose(1, 2)
        x = self.embedding(patches) + self.position(patches)
        x = self.blocks(x)
        return torch.softmax(self.head(x[:, 0]), dim=-1)
