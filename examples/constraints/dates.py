"""Make dates in many forms, and the same in ISO 8601.

    python dates.py FOLDER [PAIRS [TESTS]]

    10th of Agust 1962    1962-08-10
    1/7/2021              2021-07-01
    July 1st, 21          2021-07-01

The model has to guess the order of day and month, the century, and misspelled months. The texts to train and to
validate have any dates from 1950 to 2049. Dates to test are pay days, the 1st and the 10th of each month: only this
tells that 1/7/2021 is in July.
"""

from __future__ import annotations

import random
import sys
from datetime import date, timedelta
from pathlib import Path

from making import Pair, misspelled, write_parts

MONTHS = "January February March April May June July August September October November December"
EVERY = [date(1950, 1, 1) + timedelta(days) for days in range(36_525)]
PAY_DAYS = [day for day in EVERY if day.day in (1, 10)]


def pair(draw: random.Random, dates: list[date]) -> Pair:
    found = draw.choice(dates)
    day, name = found.day, MONTHS.split()[found.month - 1]
    ordinal = f"{day}{'th' if day in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"
    month = misspelled(draw.choice((name, name[:3])), draw, 0.2)
    year = draw.choice((f"{found.year}", f"{found.year % 100:02}"))
    forms = (
        f"{ordinal} of {month} {year}", f"{day} {month} {year}", f"{month} {ordinal}, {year}",
        f"{day}/{found.month}/{year}", f"{found.month}/{day}/{year}", f"{day}.{found.month}.{year}",
    )  # fmt: skip
    return draw.choice(forms), found.isoformat()


def main(folder: str, pairs: str = "6000", tests: str = "100") -> None:
    draw = random.Random(1)
    write_parts(Path(folder), int(pairs), int(tests), lambda: pair(draw, EVERY), lambda: pair(draw, PAY_DAYS))


if __name__ == "__main__":
    main(*sys.argv[1:])
