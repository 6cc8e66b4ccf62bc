"""The grader of the course: the checks run here, and the submitted file in a process of its own.

- `assignment`: an assignment is a plugin's name and a list of checks, each with a promise and its points.
- `grading`: runs the checks, and restarts a submission that has ended.
- `remote`, `child`: the submission as a predictor or decoder, whose methods are questions over a pipe.
- ``inside/``: the programs on the other side of the pipe.
- `boundary`, `view`, `inbox`: what the submission cannot cross, and the files that it sees.
- `report`, `cli`: the command, and what it prints and writes.
"""
