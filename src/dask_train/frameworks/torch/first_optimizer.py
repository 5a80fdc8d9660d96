"""Import what torch imports when a process makes its first optimizer.

That takes about as long as importing torch itself (1.0 s with torch 2.13, and 70 MB). Role processes are forked from a
process that has imported this module, so it happens once per Dask worker rather than in each of them.
"""

from __future__ import annotations

import torch

torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
