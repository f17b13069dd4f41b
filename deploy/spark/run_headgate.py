"""The program for ``spark-submit``: ``headgate`` with the arguments that follow, such as ``run pipeline.toml``."""

from headgate.cli import main

if __name__ == "__main__":
    main()
