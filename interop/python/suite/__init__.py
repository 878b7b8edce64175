"""Checks of our server by the official Python SDK. Each module holds the
checks of one area; `harness` says what a check is, `runner` runs them."""
