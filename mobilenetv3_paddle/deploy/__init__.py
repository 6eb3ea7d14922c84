"""From weights to a service: prediction, export, inference engines, quantisation. What needs no Paddle does not import it."""
