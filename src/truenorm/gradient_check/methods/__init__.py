"""How derivatives of forward are found: by jets, a complex step or central differences."""
