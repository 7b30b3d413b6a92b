"""How an image gets to the engine, and how a pull that was cut continues where it stopped."""
