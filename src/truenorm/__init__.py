"""Layer normalization in NumPy whose numbers can be trusted."""

from truenorm import textbook
from truenorm.gradient_check import gradcheck

__all__ = ["__version__", "gradcheck", "textbook"]

__version__ = "0.1.0.dev0"
