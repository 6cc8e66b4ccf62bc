"""Training by several processes, started by torchrun: ``sgdec train --parallel data|model|hybrid``.

What all modes share:

`group.py`     the processes, and what they send each other, counted
`strategy.py`  the seam: how the work of an update is shared; one process does it all
`memory.py`    the optimiser's memory, in checkpoints that know nothing of ranks
`volume.py`    what is sent in a step, beside the formula
`launch.py`    who starts a run's processes, and what happens when one of them dies; `farewell.py` tells it

The modes:

`data.py`      every rank has the whole model and a share of each batch
`modes.py`     which models can be spread over ranks; `staged.py` and the files it names do it
"""
