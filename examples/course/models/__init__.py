"""The small translation model of the course.

- `language`: the language pair that it translates, which is made up, with all that makes translation uncertain.
- `small`: the model as a predictor, in NumPy.
- `mixes`: spaces for searches, of the model, lattices and bigrams.
- `claims`: compares the hypotheses of a submission with the predictors.
- `train`: trains the model and writes `small.safetensors` (the only file that needs torch).
"""
