"""``python -m headgate.forking SOCKET FUNCTION``: see ``_server``."""

import sys

from headgate.forking._server import main

main(int(sys.argv[1]), sys.argv[2])
