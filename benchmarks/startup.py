"""How fast are the commands that load no model?

Whole processes, alternating; medians with the range in brackets. The target is 0.4 s.

    python benchmarks/startup.py [--runs 9]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("--help", "plugins")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    sgdec = shutil.which("sgdec", path=str(Path(sys.executable).parent)) or "sgdec"
    seconds: dict[str, list[float]] = {command: [] for command in COMMANDS}
    for _ in range(runs + 1):  # the first warms the disk's cache
        for command in COMMANDS:
            started = time.perf_counter()
            subprocess.run([sgdec, command], stdout=subprocess.DEVNULL, check=True)
            seconds[command].append(time.perf_counter() - started)
    for command, times in seconds.items():
        warm = times[1:]
        print(f"sgdec {command:<8} {statistics.median(warm):.2f} s   ({min(warm):.2f} - {max(warm):.2f})")


if __name__ == "__main__":
    main()
