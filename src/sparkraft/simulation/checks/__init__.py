"""Invariants and the checkers that watch a world for them."""
