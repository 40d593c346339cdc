"""Learning without labels: the verbs, and what labels are worth after it."""
