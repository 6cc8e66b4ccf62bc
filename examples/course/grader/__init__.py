"""The grader of the course: the definition of an assignment, and tests of a submitted file in an isolated process.

- `assignment`: an assignment is a plugin's name and a list of checks, each with a promise and its points.
- `submission`: loads the class in a student's file.
- `isolation`: runs checks in a separate process, which may crash or never end.
- `cli`: the command, and its report.
"""
