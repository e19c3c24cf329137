"""Screens of the control room."""
