"""Operations as formulas: exact answers, gradients, recipes and causes from one definition."""
