"""Asynchronous orchestration without Textual."""
