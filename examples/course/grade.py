"""Grades one file: ``python examples/course/grade.py beam my_beam.py``. Exit status 0 only for full marks."""

import sys

from grader.cli import main

if __name__ == "__main__":
    sys.exit(main())
