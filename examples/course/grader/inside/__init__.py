"""Programs that run in the child process of a submission. They import nothing of the grader."""
