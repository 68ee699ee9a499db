"""Found by the Python that a keeper becomes, when a test puts this folder on its path: that one is doomed, too."""

import os

if "SERAI_DOOM" in os.environ:
    from tests.support.boxes.crash_program import die_at_step

    die_at_step(int(os.environ["SERAI_DOOM"]))
