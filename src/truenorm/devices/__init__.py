"""Arrays that are on a device: they are normalized there, and results stay there."""
