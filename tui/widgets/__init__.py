"""Widgets of the control room: one a file; they render what they are given and post messages."""
