"""The HTTP service: dynamic batching over concurrent requests, limits, metrics, and a page for people."""
