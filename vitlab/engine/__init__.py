"""The one training loop and what it stands on: optimisers, evaluation, storage and the run folder."""
