"""Cases of one's own, a shape or saved tensors, and answers to them with a proven bound."""
