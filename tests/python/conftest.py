"""What the tests share."""

import os
import sys

import numpy as np
import pytest

# torch's compiler imports setuptools, which insists on its own distutils; Debian's Python may have loaded the standard one before.
if sys.version_info < (3, 12):
    os.environ.setdefault("SETUPTOOLS_USE_DISTUTILS", "stdlib")


@pytest.fixture
def rng():
    return np.random.default_rng(7)
