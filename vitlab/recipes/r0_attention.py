"""Report R0: softmax, Linformer and uniform attention on MNIST, three epochs.

vitlab reproduce r0-attention · softmax: 97.29 %, mean of 5 seeds on one AMD EPYC, 2 cores
(results/reports/r0-attention.json).

Given: norms after the branches, conv patches of 7, class token, learned positions, GELU and dropout in the MLP,
log-softmax output, 3 epochs, k = 16. Chosen here, the same for every variant: width 64, 4 blocks, 4 heads, MLP of 4
widths, dropout 0.1, torch's own first weights, Adam at 1e-3, batch 128, no schedule: the best on held-out pictures of
rates 5e-4, 1e-3 and 2e-3 and batches of 32, 64 and 128 at this width (docs/log.md).
"""

from vitlab.data import Mnist
from vitlab.data.prepared import Data
from vitlab.experiment import Experiment, Training
from vitlab.model import ViT
from vitlab.model.blocks import Block
from vitlab.model.tokens import ConvPatches
from vitlab.reproduce.plan import Claim, Reproduction, Variant, plain_training

recipe = Experiment(
    data=Data(source=Mnist(), validation=0.0),
    model=ViT(
        width=64,
        depth=4,
        tokens=ConvPatches(patch=7),
        block=Block(norm="after", hidden_dropout=0.1),
        output="log-softmax",
        start="torch",
    ),
    training=plain_training(Training(epochs=3, batch=128, precision="tf32"), learning_rate=1e-3),
)

reproduction = Reproduction(
    report="R0",
    title="Three kinds of attention",
    reading="R0 swaps the attention of one small ViT. Linformer squeezes the keys and values of all tokens "
    "to k rows; with k = 16 and only 17 tokens nothing is saved, so this asks whether it harms, not whether "
    "it is faster. Uniform attention gives every token the same weight: each token then adds the mean of all "
    "tokens, which a mean does in N·d operations, not N²·d as the report says. The log-softmax before the "
    "loss is harmless: cross-entropy makes the same of log-probabilities as of logits.",
    variants=(
        Variant("softmax", words="the vanilla ViT", reported=0.9866),
        Variant("Linformer", ("attention=linformer", "attention.k=16"), "k = 16 on 17 tokens", 0.9863),
        Variant("uniform", ("attention=uniform",), "every weight 1/N", 0.9257),
    ),
    claims=(
        Claim("Learned attention is better than uniform attention.", "softmax", ("uniform",)),
        Claim("Softmax attention is better than Linformer's.", "softmax", ("Linformer",)),
    ),
    small=("source=digits", "limit=4000", "width=32", "depth=2", "batch=32"),
)
