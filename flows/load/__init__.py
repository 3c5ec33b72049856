"""Sends planned requests, stamps instants, writes records; a process of its own. Knows no model, grade or rule."""
