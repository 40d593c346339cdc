"""make torture"""

import sys

from torture.runner import main

if __name__ == "__main__":
    sys.exit(main())
