"""Arrays in the memory of a device, normalized there."""
