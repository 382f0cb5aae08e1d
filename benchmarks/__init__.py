"""Measurements of the package against its peers; nothing here is needed to use it."""

import os

# PyTorch's threads spin at the end of every operation by default. Should another process hold
# a core, they spin for one that is not running, and each operation takes milliseconds: the
# peers would look 20 to 30 times slower than they are. Read when PyTorch is loaded, hence here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
