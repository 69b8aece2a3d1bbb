"""Stability, shown: what each way to normalize a row loses, and on which rows."""

from truenorm.demo.demonstration import demonstrate

__all__ = ["demonstrate"]
