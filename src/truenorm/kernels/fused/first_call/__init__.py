"""What the first call of a process is about: kernels are loaded, or a user has to wait."""
