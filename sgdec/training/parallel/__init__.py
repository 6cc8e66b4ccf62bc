"""Training on several devices or machines, started by torchrun: ``sgdec train --parallel data|model|hybrid``.

`group.py`     the processes, and what they send each other, counted
`strategy.py`  the seam: how the work of an update is shared; one process does it all
`data.py`      every rank has the whole model and a share of each batch
`launch.py`    who starts a run's processes, and what happens when one of them dies

torch.distributed is imported by those alone who train in parallel.
"""
