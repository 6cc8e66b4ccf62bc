"""The course for lecturers: the work behind ``sgdec course``.

- `export`: the distributions for students and for lecturers; `notebooks`: handouts as notebooks.
- `autograder`: the file that Gradescope grades with; its scripts are in ``gradescope/``.
- `classes`: grades the files of a class; `results`: its table and its CSV file.
"""
