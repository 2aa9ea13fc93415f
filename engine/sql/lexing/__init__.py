"""From text to tokens, and going through them."""
