"""A process that starts sweeps to be killed: each is a child with a life of its own.

It has everything imported before the first child is made, so that twenty lives take seconds.
Called with a folder and a config; for every line on its standard input it starts one sweep and
prints the number of its process, then how it ended.
"""

import os
import sys

from toy_experiment import TOY, Toy

from deeplin import sweep

folder, config = sys.argv[1], sweep.from_json(Toy, sys.argv[2])
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        sweep.run(TOY, config, folder)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
