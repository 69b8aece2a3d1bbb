"""Single numbers: how they are stored, and loops over them."""
