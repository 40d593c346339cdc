"""A trained model at work: what it says of pictures, and how sure it should be."""
