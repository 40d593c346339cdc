"""Chance without state: every draw of a step follows from (seed, step) alone, so that a resumed run draws the same."""

import numpy as np
import torch


class Chance:
    """Generators for one step: `host` for a few numbers, `device` for tensors; the global one feeds dropout."""

    def __init__(self, device: torch.device):
        self.device = torch.Generator(device=device)
        self.host = np.random.default_rng(0)
        # torch.manual_seed seeds these too, but takes a hundred times longer.
        self.shared = [torch.default_generator]
        if device.type == "cuda":
            torch.cuda.init()
            self.shared.append(torch.cuda.default_generators[device.index or 0])

    def start(self, *key: int) -> None:
        """Make all draws from here on a function of `key`."""
        first, second, third = np.random.SeedSequence(key).generate_state(3, np.uint64)
        self.host = np.random.default_rng(int(first))
        self.device.manual_seed(int(second) >> 1)
        for generator in self.shared:
            generator.manual_seed(int(third) >> 1)
