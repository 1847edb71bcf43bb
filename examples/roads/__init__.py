"""The ways to delay a message, each as people write it, with the same three functions to test and measure them by.

`connect(url)`, `send(place, body, delay)`, and `work(place, handle)`, which calls `handle(body)` when it is due, and never
ends.
"""
