"""The page: draw a digit, and watch a run's transformer think."""
