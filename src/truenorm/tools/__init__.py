"""Helpers for text, JSON, tables, figures, progress, timing and facts about the machine.

This is the lowest layer: it imports nothing of the package, and every module may import it. Only
`rich_tables` needs another package.
"""
