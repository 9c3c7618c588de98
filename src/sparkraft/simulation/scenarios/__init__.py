"""Scenarios, their options, and campaigns of many seeds."""
