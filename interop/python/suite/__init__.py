"""Checks of our server with the official Python SDK. Each module has the checks of
one area. `harness` defines what a check is, `servers` starts the servers, and
`runner` runs the checks."""
