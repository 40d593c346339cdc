"""The probes: each a question to a model, asked from outside, with a threshold that has a reason."""

from vitlab.check.finding import Probe
from vitlab.check.probes import batches, gradients, learning, outputs, pictures, running, torn

ROUNDING = (
    "1e-7 of the spread between pictures (1e-4 where the model refuses double precision): rounding stays far below, "
    "what a model uses far above"
)

PROBES = (
    Probe("repeatable", "Is the output the same twice in evaluation mode?", ROUNDING, running.repeatable),
    Probe(
        "neighbours",
        "Does a picture's output stay the same when its batch neighbours change?",
        ROUNDING,
        pictures.neighbours,
    ),
    Probe(
        "reach",
        "Does the output depend on every part of the picture?",
        "a pixel is unseen when its gradient is exactly 0 and changing it moves nothing; up to a fifth may be an edge "
        "cut off, where the rest is one rectangle",
        pictures.reach,
    ),
    Probe("positions", "Does moving patches around change the output?", ROUNDING, pictures.positions),
    Probe(
        "output",
        "Are the outputs logits?",
        "that all outputs of four pictures, at three scales, have one sign and one sum or lie from 0 to 1 is no "
        "accident; nor that they end at two numbers, with any weight tensor a thousandfold",
        outputs.output,
    ),
    Probe(
        "scale",
        "Are attention scores divided by the root of the head's width?",
        "1 %: the factor is a number in the code, not a measurement",
        outputs.scale,
    ),
    Probe(
        "torn",
        "Do patches, heads and attention's weights stay whole?",
        "numbers that were only moved are found again to the last bit; weights add up to 1 ± 1e-4",
        torn.torn,
    ),
    Probe(
        "gradients",
        "Does each weight receive a gradient?",
        "exactly 0, or 1e-15 of the largest where changing it does nothing: rounding is never the one, often the other",
        gradients.gradients,
    ),
    Probe("copies", "Do the blocks start with weights of their own?", "equal to the last bit", learning.copies),
    Probe(
        "depth",
        "Do features and gradients keep their size from block to block?",
        "a factor of 1,000: sound models of timm and transformers stay below 4",
        learning.depth,
    ),
    Probe(
        "batch-sizes",
        "Do one picture and another batch size work, with the same outputs?",
        "1e-5 of the spread: kernels for other sizes round otherwise",
        running.batch_sizes,
    ),
    Probe(
        "resolution",
        "Is a picture of another size answered rightly or refused?",
        "the form of the output",
        running.resolution,
    ),
    Probe(
        "saving",
        "Is all of it in the state dict?",
        "1e-4 of the spread in single precision",
        running.saving,
    ),
    Probe(
        "overfit",
        "Can it learn 32 pictures by heart?",
        f"90 % known within {learning.STEPS} steps at one of three rates: sound models of timm and transformers need "
        "at most 130",
        learning.overfit,
    ),
    Probe(
        "export",
        "Do torch.export and torch.compile take it as one graph?",
        "1e-3 of the spread: other kernels round otherwise",
        running.export,
    ),
    Probe(
        "every-picture",
        "Does the test loader give every test picture?",
        "one picture missing is one too many",
        batches.every_picture,
        of_batches=True,
    ),
    Probe("order", "Does the test loader keep the order?", "one picture elsewhere", batches.order, of_batches=True),
    Probe(
        "unchanged",
        "Are test pictures left as they are, and normalised as the training pictures?",
        "half a deviation, or a factor of 1.6 in contrast: parts of one data set differ by a few hundredths",
        batches.unchanged,
        of_batches=True,
    ),
    Probe(
        "overlap",
        "Are the test pictures new?",
        "0.5 % equal to the last pixel: published data sets hold a few such pairs themselves",
        batches.overlap,
        of_batches=True,
    ),
)
