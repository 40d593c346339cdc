"""The reports' experiments, as written and mended one step at a time."""
