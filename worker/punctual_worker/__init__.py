"""Punctual's worker: intake, dispatcher, and what a person runs on one machine."""

__version__ = "0.1.0"
