"""``python -m truenorm``: the command ``truenorm``."""

from truenorm.cli import main

if __name__ == "__main__":
    main()
