"""The grader of the course: what an assignment is, and how a submitted file is tested without trusting it.

- `assignment`: an assignment is a plugin's name and a list of checks, each with a promise and its points.
- `submission`: how a student's file becomes a class.
- `isolation`: checks in a process of their own, which may crash or never end.
- `cli`: the command, and its report.
"""
