"""Explanations of leadership as documents and as lines, for commands and for the console.

Responses become JSON documents first; the text is written from those, so that both agree.
"""
