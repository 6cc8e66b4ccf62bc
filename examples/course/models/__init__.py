"""The small translation model of the course.

- `language`: the language pair that it translates, which is made up, with all that makes translation uncertain.
- `small`: the model as a predictor, in NumPy.
- `train`: trains the model and writes `small.safetensors` (the only file that needs torch).
"""
