"""Other people's weights in, and ours out: timm, Hugging Face, DINO and MAE checkpoints mapped onto vitlab's parts."""
