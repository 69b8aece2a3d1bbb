"""Cases: how arrays are filled, and the families and named cases that are made of them."""
