"""Keep bytecode, even where ``PYTHONDONTWRITEBYTECODE`` is set, as in many containers: imported first.

The tests start hundreds of processes. Without bytecode, each compiles the libraries again, which takes five seconds.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
