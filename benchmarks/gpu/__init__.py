"""What compilers for graphics processors make of the kernels, none of which has to be there."""
