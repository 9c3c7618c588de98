"""Simulated clients, and the history of what they saw."""
