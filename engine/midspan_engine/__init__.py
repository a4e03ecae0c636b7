"""The Midspan engine: DiffusionGemma, the canvas, the denoising loop and the host process that serves them."""
