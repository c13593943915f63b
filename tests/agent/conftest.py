"""The tests of proposers import the helper beside them, too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
