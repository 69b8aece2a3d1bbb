"""How closely forward can be seen: how far to move it, its noise, and its last places."""
